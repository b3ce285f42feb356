"""What people read: text of logs made safe, numbers as people write them, tables."""
