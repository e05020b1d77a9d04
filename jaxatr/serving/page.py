"""The console's pages: single HTML files that load nothing from other servers."""

import base64
import hashlib
import json
from typing import Any

from fastapi import Response

from jaxatr.reporting.environment import environment
from jaxatr.reporting.overlay import colour_map
from jaxatr.reporting.scene_picture import KNOWN, UNDECIDED, UNKNOWN

_PALETTE = {"known": KNOWN, "unknown": UNKNOWN, "undecided": UNDECIDED}
"""The colours of boxes in a scene, equal to those of ``jaxatr detect --pictures``."""


class Page:
    """A page, with a Content-Security-Policy that allows only its own script and style.

    Attributes:
      text: the HTML text.
    """

    def __init__(self, name: str, /, **values: Any):
        """Renders a page.

        Args:
          name: its templates are ``NAME.html``, ``NAME.css`` and ``NAME.js``.
          **values: what they show.
        """
        made = environment(["jaxatr.serving", "jaxatr.reporting"])
        style, script = (made.get_template(f"{name}.{kind}").render() for kind in ("css", "js"))
        colours = base64.b64encode(colour_map().tobytes()).decode()
        self.text = made.get_template(f"{name}.html").render(
            style=style,
            script=script,
            colours=colours,
            palette=json.dumps(_PALETTE),
            **values,
        )
        policy = (
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "img-src blob: data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
        self._headers = {"content-security-policy": "; ".join(policy)}

    def response(self) -> Response:
        """Makes the response to a request for the page."""
        return Response(self.text, media_type="text/html", headers=self._headers)


def _hash(text: str) -> str:
    """Returns the hash source of a text for a Content-Security-Policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
