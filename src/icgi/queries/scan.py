"""placeholder"""


def scan(): ...
