"""What is wrong with gpushare in a cluster, and what to do about it."""
