"""Files by content, and how any file is opened, copied, decoded and found sound: the ground that
all rooms stand on."""
