"""Ctrl-C where it hurts most."""

from __future__ import annotations

from anabranch.runtime.tasks import ThreadTasks


class Pressed(type(ThreadTasks().condition())):  # type: ignore[misc]
    """A condition with Ctrl-C right behind the end of its first `with`: what is done there has been done, and what follows in
    the caller has not begun."""

    def __init__(self) -> None:
        super().__init__()
        self._pressed = False

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        if not self._pressed:
            self._pressed = True
            raise KeyboardInterrupt
