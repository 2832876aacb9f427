"""`kind_of_failure`: classifies the errors of stores, whichever library raises them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

Kind = Literal["missing", "refused", "beyond_end", "unusable", "transient"]

_BY_STATUS: dict[int, Kind] = {
    400: "unusable", 401: "refused", 403: "refused", 404: "missing", 408: "transient", 416: "beyond_end",
    429: "transient",
}  # fmt: skip
_SERVER_ERROR = 500
_OF_CREDENTIALS = (
    "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch", "TokenRefreshRequired",
    "RequestTimeTooSkewed",
    "AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation",  # of Azure
)  # fmt: skip
_BY_CODE: dict[str, Kind] = {
    **dict.fromkeys(("SlowDown", "RequestTimeout", "Throttling", "ThrottlingException"), "transient"),
    **dict.fromkeys(("AccessDenied", "InvalidObjectState"), "refused"),
    **dict.fromkeys(("BlobArchived", "BlobBeingRehydrated", "PublicAccessNotPermitted"), "refused"),  # of Azure, by 409
    **dict.fromkeys(_OF_CREDENTIALS, "refused"),
    **dict.fromkeys(("InvalidBucketName", "PermanentRedirect", "AuthorizationHeaderMalformed"), "unusable"),
    "NoSuchBucket": "missing",
}
_MISSING_BUCKET = {"NoSuchBucket", "ContainerNotFound"}
_NO_CREDENTIALS = {
    "ClientAuthenticationError", "CredentialRetrievalError", "CredentialUnavailableError", "DefaultCredentialsError",
    "GatedRepoError", "NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "TokenRetrievalError",
    "UnauthorizedSSOTokenError",
}  # fmt: skip
_NO_CONNECTION = {  # of Python, aiohttp, requests, botocore, google.auth and azure.core, with their subclasses
    "ClientConnectionError", "ConnectionError", "HTTPClientError", "ServiceRequestError", "ServiceResponseError",
    "Timeout", "TimeoutError", "TransportError", "gaierror",
}  # fmt: skip

_NOT_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


def kind_of_failure(error: BaseException) -> Kind:
    """Classifies an error of a store.

    "missing": there is no such file, or bucket. "refused": without permission, or credentials. "beyond_end": the range
    starts after the end of the file. "unusable": the request can never succeed. "transient": all else, as throttling,
    errors of the server, timeouts and cut connections; it may succeed if it is repeated.
    """
    kinds = (_kind_of_response(each) for each in _chain(error))
    kind = next((kind for kind in kinds if kind is not None), None)
    if kind is not None:
        return kind
    if isinstance(error, PermissionError) or is_forbidden_by_google(error):
        return "refused"
    if isinstance(error, _NOT_THERE):
        return "transient" if _is_of_connection(error.__cause__) else "missing"
    return "unusable" if isinstance(error, (TypeError, ValueError, NotImplementedError)) else "transient"


def is_unreachable(error: BaseException) -> bool:
    """Whether an error, of whichever library, is one of a connection that cannot be made, or that breaks."""
    return not _NO_CONNECTION.isdisjoint(each.__name__ for each in type(error).__mro__)


def is_forbidden_by_google(error: BaseException) -> bool:
    """Whether gcsfs raised it from a 403: an error without a status, with the URL and the store's reason as lines."""
    return type(error) is OSError and str(error).startswith("Forbidden: ")


def _is_of_connection(cause: BaseException | None) -> bool:
    """Whether a request had no response: fsspec's web server raises `FileNotFoundError` from that too."""
    if isinstance(cause, OSError):
        return not isinstance(cause, _NOT_THERE)
    return type(cause).__module__.partition(".")[0] == "aiohttp"


def _kind_of_response(error: BaseException) -> Kind | None:
    """Classifies an error by its code or the status of the store's response; None where it has neither."""
    if type(error).__name__ in _NO_CREDENTIALS:
        return "refused"
    status = _status(error)
    by_status = None if status is None else _BY_STATUS.get(status, "transient" if status >= _SERVER_ERROR else None)
    return _BY_CODE.get(code_of(error) or "", by_status)


def is_of_credentials(error: BaseException) -> bool:
    """Whether a request was refused because of its credentials, whatever it asked for."""
    return any(type(each).__name__ in _NO_CREDENTIALS or code_of(each) in _OF_CREDENTIALS for each in _chain(error))


def is_missing_bucket(error: BaseException) -> bool:
    """Whether the bucket does not exist."""
    return any(code_of(each) in _MISSING_BUCKET for each in _chain(error))


def code_of(error: BaseException) -> str | None:
    """Code of an error of S3 or Azure, such as "SlowDown" or "ServerBusy"; None for other errors."""
    of_azure = getattr(error, "error_code", None)
    if of_azure is not None:
        return str(getattr(of_azure, "value", of_azure))
    response = getattr(error, "response", None)
    details = response.get("Error") if isinstance(response, dict) else None
    code = details.get("Code") if isinstance(details, dict) else None
    return code if isinstance(code, str) else None


def _status(error: BaseException) -> int | None:
    """Status of the HTTP response that caused an error."""
    # A response that broke, although its code is 400.
    if "aiohttp.http_exceptions" in {type(error).__module__, type(error.__cause__).__module__}:
        return None
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):
        response = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return response if isinstance(response, int) else None
    for owner, name in ((response, "status_code"), (error, "status"), (error, "status_code"), (error, "code")):
        value = getattr(owner, name, None)
        if isinstance(value, int):
            return value
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yields the error and its causes."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__
