"""The one error a user is meant to read."""


class UserError(Exception):
    """Bad input. The message names file, field, value and the fix; the command line prints it and exits with 2."""
