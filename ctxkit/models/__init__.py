"""A model as a callable: scripted, any provider through LiteLLM, a local file; and the table of
overflow messages.
"""
