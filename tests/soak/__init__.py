"""`make soak`: random histories and bodies for as long as asked."""
