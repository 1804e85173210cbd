"""The one error a user is meant to read, and the exit codes that are not 0, 1 or 2."""


class UserError(Exception):
    """Bad input. The message names file, field, value and the fix; the command line prints it and exits with 2."""


UNFINISHED = 75  #: exit code: stopped on request or busy in another process; the same command goes on
