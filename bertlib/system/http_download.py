"""Downloads files from web servers: resumes interrupted downloads, checks files and unpacks zip files.

A file appears under its name only when it is complete. This module does not import TensorFlow.
"""

import contextlib
import errno
import http.client
import json
import os
import shutil
import ssl
from typing import NamedTuple
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib

from absl import logging

from bertlib.system import files

_CHUNK_BYTES = 2**20
_CHECK_IN_BROWSER = "in a browser to see whether the file has moved."
_KEPT = " The received bytes are kept."
_MAX_MESSAGE_LENGTH = 200  # a message quotes at most this number of characters from a server's text
# A zip is refused as a zip bomb if its unpacked content has more than 2**20 bytes and is more than 100 times
# as large as the zip, or if it has more than 10,000 files. The unpacked content of the published zips is at
# most 10 times as large as the zip.
_MAX_COMPRESSION_RATIO, _SMALL_FILE_BYTES, _MAX_FILES = 100, 2**20, 10_000
# Errors that Python raises for a zip that is damaged or not supported. FileExistsError, NotADirectoryError
# and IsADirectoryError are raised if a name in the zip means both a file and a folder.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError,
               FileExistsError, NotADirectoryError, IsADirectoryError)


class ServerError(OSError):
    """The error for a server that does not answer, refuses the request, or does not send the requested
    file."""


class DamagedError(ValueError):
    """The error for a zip that cannot be read, or lacks the expected files."""


class Source(NamedTuple):
    """A file on a web server, and the local files that it provides.

    Attributes:
      address: the URL of the file.
      directory: the local directory of the files, relative to a root directory.
      files: paths of the files in the directory, such as "dev.tsv" or "dev/texts.tsv". If the file on the
        server is a zip, one of the zip's folders must contain these files, and the content of this folder is
        stored in `directory`. Otherwise, `files` contains one name, and the file on the server is stored
        under this name.
    """

    address: str
    directory: str
    files: tuple


def download(source, root, base_url=None):
    """Downloads the files of a source, unless all of them exist.

    Args:
      source: a `Source`.
      root: the local directory that contains the directory of the source.
      base_url: URL that replaces the scheme and the host in the address of the source; None to use the
        published address.

    Returns:
      bool, True if this call downloaded or unpacked files.

    Raises:
      ServerError: see `fetch`.
      DamagedError: see `unpack`. The zip is removed only if this call downloaded it.
      FileExistsError: the directory for the content of a zip already exists, and contains other files.
      OSError: the files cannot be written.
    """
    directory = os.path.join(root, source.directory)
    missing_files = [name for name in source.files if not os.path.exists(os.path.join(directory, name))]
    if not missing_files:
        return False
    address = source.address
    if base_url is not None:
        address = base_url.rstrip("/") + urllib.parse.urlsplit(address).path
    if not source.address.endswith(".zip"):
        return fetch(address, os.path.join(directory, source.files[0]))
    if os.path.lexists(directory) and not (os.path.isdir(directory) and not os.listdir(directory)):
        raise FileExistsError(f"{directory} already exists, but lacks {', '.join(missing_files)}. Move this "
                              "directory to another place, or name another destination.")
    archive = f"{directory}.zip"
    was_fetched = fetch(address, archive)
    try:
        unpack(archive, directory, source.files)
    except DamagedError as error:
        if not was_fetched:
            raise DamagedError(f"{error} Remove the zip and run the command again; it then downloads the zip "
                               "again.") from error
        os.remove(archive)
        raise DamagedError(f"{error} The zip came from {address}. The zip was removed.") from error
    if was_fetched:
        os.remove(archive)
    return True


# --- Fetching --------------------------------------------------------------------------------------------


def fetch(address, path, timeout=60):
    """Downloads a file, unless it exists; resumes an interrupted download.

    The received bytes of an unfinished download are in `<path>.partial`. `<path>.partial.json` contains the
    version of the file on the server (see RFC 9110, section 13.1.5, If-Range). If the file has changed on the
    server, or if the server cannot send a part of the file, the whole file is downloaded again. After an
    interruption, the function connects again. It gives up if a new connection brings no more bytes.

    Args:
      address: an http or https URL.
      path: local file. Its directory is created.
      timeout: seconds to wait for an answer of the server.

    Returns:
      bool, whether the file was downloaded.

    Raises:
      ServerError: the server did not answer or refused the request. Or it sent a web page, an empty file, or
        fewer bytes than it had announced. The message says what to do.
      OSError: the file cannot be written.
    """
    if os.path.exists(path):
        return False
    files.make_parent(path)
    partial, longest = f"{path}.partial", -1
    with files.translate_disk_errors(path):
        while True:
            total, broken = _fetch_rest(address, partial, timeout)
            num_bytes = os.path.getsize(partial)
            if not broken and num_bytes == (num_bytes if total is None else total):
                break
            so_far = (f"after {num_bytes:,} of "
                      f"{'an unknown number of' if total is None else f'{total:,}'} bytes")
            if num_bytes <= longest:
                raise ServerError(f"{address}: the connection was interrupted {so_far}"
                                  f"{f' ({broken})' if broken else ''}. Run the same command again."
                                  f"{_KEPT if num_bytes else ''}")
            logging.info("The connection was interrupted %s; connecting again.", so_far)
            longest = num_bytes
        if not num_bytes:
            _remove_partial(partial)
            raise ServerError(f"{address}: the server sent an empty file. Try again later, or open the "
                              f"address {_CHECK_IN_BROWSER}")
        if total is None:
            logging.warning("The server did not say how long %s is, so its length is not checked.", address)
        os.replace(partial, path)
        _remove_partial(partial)
    return True


def _remove_partial(partial):
    """Removes a partial file, and the file with its version."""
    for path in (partial, f"{partial}.json"):
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def _fetch_rest(address, partial, timeout):
    """Requests the missing bytes of a partial file, and appends them. Creates the partial file if needed.
    Does not connect again after an interruption.

    Returns:
      (length of the whole file in bytes, or None if the server did not send the length; the error that
      interrupted the connection, or None).
    """
    offset, version = _partial_state(address, partial)
    response = _request(address, offset, version, timeout)
    is_part = response is not None and response.status == http.client.PARTIAL_CONTENT
    if offset and not (is_part and response.headers.get("Content-Range", "").startswith(f"bytes {offset}-")):
        logging.info("%s has changed, or the server cannot send a part of it. The whole file is downloaded.",
                     address)
        if response is None or is_part:
            response = _request(address, 0, None, timeout)
        offset = 0
    with response:
        if response.headers.get_content_type() == "text/html":
            raise ServerError(f"{address}: the server sent a web page instead of the file, perhaps a login "
                              "page of this network. Open the address in a browser to see the page.")
        rest = response.length
        check_free_space(partial, rest)
        with open(partial, "ab" if offset else "wb") as writer:
            if not offset:
                state = {"address": address, "version": _version_of(response)}
                files.write_text(f"{partial}.json", json.dumps(state) + "\n")
            broken = _copy(response, writer, rest, f"Fetching {address.rpartition('/')[2]}: MiB")
    return None if rest is None else offset + rest, broken


def _partial_state(address, partial):
    """Returns (size of a partial file in bytes, version of the file on the server).

    Returns (0, None) if the version is not known. Without the version, the server could not check that the
    bytes of the partial file belong to the server's current file.
    """
    try:
        state = files.read_json_object(f"{partial}.json")
        if state.get("address") == address and state.get("version"):
            return os.path.getsize(partial), state["version"]
    except (FileNotFoundError, ValueError):
        pass
    return 0, None


def _version_of(response):
    """Returns the version of a file on the server: the strong ETag. If the response has no strong ETag,
    returns the date of the last change, or None if the response has no date either."""
    tag = response.headers.get("ETag", "W/")
    return response.headers.get("Last-Modified") if tag.startswith("W/") else tag


def _request(address, offset, version, timeout):
    """Requests the bytes of a file from `offset` to the end. Returns the response, or None if the file has no
    byte at `offset`."""
    headers = {"User-Agent": "bert-as-published"}
    if offset:
        headers.update({"Range": f"bytes={offset}-", "If-Range": version})
    try:
        return urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        with error:
            if offset and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                return None
            raise ServerError(f"{address}: the server answers {error.code} {_one_line(error.reason)}. Open "
                              f"the address {_CHECK_IN_BROWSER}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = _one_line(getattr(error, "reason", None) or error)
        raise ServerError(f"{address}: the server does not answer ({reason}). Check the network. If "
                          "this machine needs a proxy, check $https_proxy. Then run the same command again."
                          f"{_KEPT if offset else ''}") from error


def _one_line(text):
    """Returns a server's text as one line of at most `_MAX_MESSAGE_LENGTH` characters."""
    return " ".join(str(text).split())[:_MAX_MESSAGE_LENGTH]


def _copy(response, writer, length, doing):
    """Writes the content of a response to a file. Returns the error that interrupted the connection, or
    None."""
    pieces = iter(lambda: response.read(_CHUNK_BYTES), b"")
    if length is not None:
        pieces = files.with_progress(pieces, -(-length // _CHUNK_BYTES), doing, every=50)
    try:
        for piece in pieces:
            writer.write(piece)
    except (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
        return error
    return None


def check_free_space(path, size):
    """Checks that the disk has enough free space for a file.

    Args:
      path: the file.
      size: size of the file in bytes; None if it is not known.

    Raises:
      OSError: the free space is smaller than `size`.
    """
    free = shutil.disk_usage(files.existing_parent(path)).free
    if size is not None and size > free:
        problem, advice = files.describe_disk_error(OSError(errno.ENOSPC, ""), path, size)
        raise OSError(f"{path} could not be written: {problem}. {advice}")


# --- Unpacking -------------------------------------------------------------------------------------------


def unpack(archive, directory, expected_files):
    """Unpacks one folder of a zip into a new directory: the folder that contains the expected files.

    The checksum of each file is checked. Files outside of the folder are removed.

    Args:
      archive: path of the zip.
      directory: the new directory. It must be missing or empty.
      expected_files: names of files, at least one.

    Raises:
      DamagedError: the archive is not a zip, a checksum differs, an expected file is missing, or the zip has
        too many files or too large ones. All unpacked files are removed.
      OSError: the files cannot be written.
    """
    partial = f"{directory}.partial"
    shutil.rmtree(partial, ignore_errors=True)  # a killed run may have left it
    try:
        with files.translate_disk_errors(directory):
            os.rename(_extract(archive, partial, expected_files), directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _extract(archive, target, expected_files):
    """Unpacks a zip into the directory `target`. Returns the path of the unpacked folder that contains the
    expected files. Even if the zip names a path outside of `target`, all files are in `target`."""
    try:
        with zipfile.ZipFile(archive) as zipped:
            infos = zipped.infolist()
            if any(info.header_offset < 0 for info in infos):
                raise zipfile.BadZipFile("its beginning is missing")
            _check_size(archive, target, [info.file_size for info in infos])
            zipped.extractall(target)
    except _ZIP_ERRORS as error:
        raise DamagedError(f"{archive} is damaged, or is not a zip: {error}.") from error
    for folder in sorted((folder for folder, _, _ in os.walk(target)), key=len):
        paths = [os.path.join(folder, name) for name in expected_files]
        if all(os.path.isfile(path) and os.path.getsize(path) for path in paths):
            return folder
    raise DamagedError(f"{archive}: no folder in this zip contains all of {', '.join(expected_files)}. The "
                       f"zip contains {', '.join(sorted(zipped.namelist())[:10]) or 'nothing'}.")


def _check_size(archive, target, sizes):
    """Raises an error if files of these sizes are too many or too large for the archive or for the disk."""
    total, size = sum(sizes), os.path.getsize(archive)
    if len(sizes) > _MAX_FILES or total > max(_SMALL_FILE_BYTES, _MAX_COMPRESSION_RATIO * size):
        raise DamagedError(f"{archive}: the zip has {size:,} bytes, but its content has {total:,} bytes in "
                           f"{len(sizes):,} files. No published zip has such a high ratio or so many files, "
                           "so the zip was not unpacked.")
    check_free_space(target, total)
