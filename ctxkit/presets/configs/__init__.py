"""The config files of other systems: one file each says which key is which setting."""
