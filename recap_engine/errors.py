"""The one exception whose message is meant for the person at the page or the prompt."""


class RecapError(Exception):
    """Something a person can put right. Its message is one clear sentence and needs no traceback."""
