"""Which pod sits on which card: the table that people look at."""
