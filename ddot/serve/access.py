"""Access control: allowed hosts and origins, and the API key."""

import hmac
import ipaddress
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from ddot.serve.replies import HTTPError

ANY = "*"
_MAX_KEY = 8_192  # characters


@dataclass(frozen=True)
class Access:
    """Admits clients with the API key, if one is set, pages from these origins, and requests for these host names.

    A page from another site can send requests to this address and, by DNS rebinding, even read the replies. Browsers
    send the site of the page as `Origin` and the host they asked for as `Host`.
    """

    api_key: str | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    def check_site(self, headers: Headers) -> None:
        """Refuse requests for other hosts or from other sites."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._is_known_host(host):
            raise HTTPError(
                421,
                f"this server does not answer to the host name {_quoted(_hostname(host))}; use its IP address, "
                "or start it with --allow-host NAME",
                "wrong_host",
            )
        if origin is None or ANY in self.origins or origin in self.origins:
            return
        if urlsplit(origin).netloc.lower() != host.lower() or not host:
            raise HTTPError(
                403,
                f"requests from pages at {_quoted(origin)} are refused; start the server with --allow-origin ORIGIN "
                "to allow them",
                "wrong_origin",
            )

    def check_key(self, headers: Headers) -> None:
        """Refuse clients without the key; compares in constant time."""
        if self.api_key is None:
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        is_valid = hmac.compare_digest(token.strip().encode("latin-1"), self.api_key.encode())  # headers are Latin-1
        if scheme.lower() != "bearer" or not is_valid:
            problem = "the API key is wrong" if token else "an API key is required"
            advice = "send it as 'Authorization: Bearer KEY'"
            raise HTTPError(401, f"{problem}; {advice}", "invalid_api_key", {"WWW-Authenticate": "Bearer"})

    def _is_known_host(self, host: str) -> bool:
        """IP addresses are always allowed: DNS rebinding needs a name."""
        name = _hostname(host)
        return not host or name in (*self.hosts, "localhost") or ANY in self.hosts or is_address(name)


def _hostname(host: str) -> str:
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
    """Whether other machines may reach a server that listens on this host."""
    return not (host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback))


def _is_shell_stream(path: Path) -> bool:
    """Whether the shell has opened this path: /dev/stdin, or <(command)."""
    return path == Path("/dev/stdin") or path.parent in (Path("/dev/fd"), Path("/proc/self/fd"))


def _file_type(mode: int) -> str:
    types = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
    return types.get(stat.S_IFMT(mode), "a device")


def read_api_key(path: Path) -> str:
    """The key in a file. Reading a named pipe or a device might never end; a stream from the shell does."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not (stat.S_ISFIFO(mode) and _is_shell_stream(path)):
            raise ValueError(f"{path} is {_file_type(mode)}; --api-key-file must be a text file that holds the key")
        with path.open(encoding="utf-8") as file:
            key = file.read(_MAX_KEY).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"cannot read the API key from {path}: {reason}; name a text file that holds it") from None
    if not key or "\n" in key:
        raise ValueError(f"{path} has {len(key.splitlines())} lines; wanted one line, the API key")
    if not key.isprintable() or len(key) == _MAX_KEY:
        raise ValueError(f"{path} holds no API key: wanted a line of up to {_MAX_KEY - 1:,} printable characters")
    return key
