"""The archive: every stable entry of the log, in files on a target away from the masters' disks."""
