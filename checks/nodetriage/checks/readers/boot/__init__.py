"""What the boot before this one left: the end of its journal, and what the kernel saved when it stopped."""
