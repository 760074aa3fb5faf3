"""Text that a terminal only shows: names, reasons and messages come from nodes and users, who may want more of it."""


def printable(text: str) -> str:
    r"""The text with each character that moves the cursor, changes a colour or turns the direction as its escape.

    A line feed becomes the two characters `\n`, so the result is one line.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
