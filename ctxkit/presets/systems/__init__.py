"""The presets: one file a system, with its config file where it has one."""
