"""The prompt cache, foretold: what each call of a session reads, without its reads.

`calls` holds what may be known of a call before its reply, `causes` why a cache is missed, `counts`
what one session teaches, `table` the sessions that teach, `draws` the reads that they foretell, and
`predictions` how far the foretold dollars are from the recorded ones.
"""
