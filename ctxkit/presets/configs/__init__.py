"""The config files of other systems: one file a system says which key is which setting of its
preset.
"""
