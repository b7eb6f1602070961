"""Doors to other libraries, each in a module of its name; nothing else imports them, and each needs its library."""
