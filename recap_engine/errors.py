"""The one exception whose message is meant for the person at the page or the prompt."""


class RecapError(Exception):
    """Something a person can put right. Its message is one clear sentence and needs no traceback."""


def first_line(error: BaseException) -> str:
    """What an error of another library says, without its details."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def is_memory_full(error: Exception) -> bool:
    """Whether a device, or the machine itself, had no memory left; torch tells the one by class, the other by words."""
    words = ("out of memory", "can't allocate memory")
    return isinstance(error, MemoryError) or any(told in str(error) for told in words)
