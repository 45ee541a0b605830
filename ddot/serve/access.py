"""Who may ask: the hosts and origins a request may name, and the API key."""

import hmac
import ipaddress
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from ddot.serve.replies import Refused

ANY = "*"
_LONGEST_KEY = 8_192


@dataclass(frozen=True)
class Access:
    """Admits clients with the API key, if there is one, pages of these origins, and requests for these host names.

    A page of another site can send requests to this address and, by DNS rebinding, even read the replies. Browsers name
    the site of the page in `Origin` and the host they asked for in `Host`.
    """

    api_key: str | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    def check_site(self, headers: Headers) -> None:
        """Refuse requests for other hosts and from other sites."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._answers_to(host):
            raise Refused(
                421,
                f"this server does not answer to the host name {_quoted(_name_of(host))}; ask for it by its address, "
                "or start it with --allow-host NAME",
                "wrong_host",
            )
        if origin is None or ANY in self.origins or origin in self.origins:
            return
        if urlsplit(origin).netloc.lower() != host.lower() or not host:
            raise Refused(
                403,
                f"requests from pages of {_quoted(origin)} are refused; start the server with --allow-origin ORIGIN "
                "to allow them",
                "wrong_origin",
            )

    def check_key(self, headers: Headers) -> None:
        """Refuse clients without the key, comparing in constant time."""
        if self.api_key is None:
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        is_right = hmac.compare_digest(token.strip().encode("latin-1"), self.api_key.encode())  # read as Latin-1
        if scheme.lower() != "bearer" or not is_right:
            wrong = "the API key is wrong" if token else "an API key is required"
            advice = "send it as 'Authorization: Bearer KEY'"
            raise Refused(401, f"{wrong}; {advice}", "invalid_api_key", {"WWW-Authenticate": "Bearer"})

    def _answers_to(self, host: str) -> bool:
        """An IP address cannot be made to resolve to this server by DNS rebinding."""
        name = _name_of(host)
        return not host or name in (*self.hosts, "localhost") or ANY in self.hosts or is_address(name)


def _name_of(host: str) -> str:
    """The host without its port and brackets."""
    return re.sub(r":\d*$", "", host.lower()).strip("[]")


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")


def is_address(name: str) -> bool:
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def is_public(host: str) -> bool:
    """Whether other machines may reach a server that listens there."""
    return not (host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback))


def _is_open(path: Path) -> bool:
    """Whether a path stands for what the shell has opened: /dev/stdin, or <(command)."""
    return path == Path("/dev/stdin") or path.parent in (Path("/dev/fd"), Path("/proc/self/fd"))


def _named(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def api_key_in(path: Path) -> str:
    """The key in a file. A named pipe might be waited for, a device read, for ever; what the shell opened will end."""
    try:
        kind = path.stat().st_mode
        if not stat.S_ISREG(kind) and not (stat.S_ISFIFO(kind) and _is_open(path)):
            raise ValueError(f"{path} is {_named(kind)}; --api-key-file must be a text file that holds the key")
        with path.open(encoding="utf-8") as file:
            key = file.read(_LONGEST_KEY).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"cannot read the API key in {path}: {reason}; name a text file that holds it") from None
    if not key or "\n" in key:
        raise ValueError(f"{path} has {len(key.splitlines())} lines; wanted one, the API key")
    if not key.isprintable() or len(key) == _LONGEST_KEY:
        raise ValueError(f"{path} holds no API key: wanted a line of up to {_LONGEST_KEY - 1:,} printable characters")
    return key
