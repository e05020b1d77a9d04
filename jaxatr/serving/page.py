"""The page of the console: one file, that needs no other and no network but the console's own."""

import base64
import hashlib

from fastapi import Response

from jaxatr.reporting.environment import environment
from jaxatr.reporting.overlay import colour_map


class Page:
    """The page, with a policy that lets its own script and style run and nothing else.

    Attributes:
      text: of the HTML.
    """

    def __init__(self):
        """Renders the page."""
        made = environment(["jaxatr.serving", "jaxatr.reporting"])
        style, script = (made.get_template(f"console.{kind}").render() for kind in ("css", "js"))
        colours = base64.b64encode(colour_map().tobytes()).decode()
        self.text = made.get_template("console.html").render(
            style=style, script=script, colours=colours
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
        """Answers a request for the page."""
        return Response(self.text, media_type="text/html", headers=self._headers)


def _hash(text: str) -> str:
    """Names a text as a Content-Security-Policy does."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
