"""Reads hosts and names out of database URLs, without the driver."""

from urllib.parse import urlsplit


def safe_url(url: str) -> str:
    """Hosts, ports and database of a URL, without user, password or query: fit for messages."""
    parts = urlsplit(url)
    if "," in parts.netloc:
        return f"{hosts_of(url)}{parts.path}"
    return f"{parts.hostname or 'local socket'}:{parts.port or 5432}{parts.path}"


def hosts_of(url: str) -> str:
    """Hosts and ports of a URL as they stand in it: PostgreSQL's may name several."""
    return urlsplit(url).netloc.rpartition("@")[2]
