"""Files from web servers, whole or not there: a broken download goes on, a zip is unpacked. Loads no
TensorFlow.
"""

import contextlib
import errno
import http.client
import json
import os
import re
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
_WEB_PAGE = ("a web page came in place of the file, perhaps that of a login to this network. Open the "
             "address in a browser to see it.")
_CHECK_IN_BROWSER = "in a browser to see whether the file has moved."
_MAX_MESSAGE_LENGTH = 200  # characters of a server's words in a message
_MAX_DIGITS = 18  # digits of a length: of more bytes there are none
# The content of published zips is at most 10 times as large as they are. If it is 100 times as large, and not
# small, or of very many files, the zip is made to fill a disk.
_MAX_COMPRESSION_RATIO, _SMALL_FILE_BYTES, _MAX_FILES = 100, 2**20, 10_000
# Errors for a zip that is damaged, that Python cannot read, or of which two files would be one.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError,
               FileExistsError, NotADirectoryError)


class ServerError(OSError):
    """A server does not answer, refuses, or sends something else."""


class DamagedError(ValueError):
    """A zip cannot be read, or is not the expected one."""


class Source(NamedTuple):
    """What one address has.

    `files` are the names of files in `directory` once it is there: of a zip, those that it has to hold in one
    of its folders, which becomes the directory; of any other file, the one name that it gets. `problem_in` is
    a function of a path and of one of these names: it returns what is wrong with the content of the file, in
    words, or None.
    """

    address: str
    directory: str
    files: tuple
    problem_in: object = None


def download(source, root, base_url=None, timeout=60):
    """Makes the files of a source, unless all are there.

    Args:
      source: a `Source`.
      root: what its directory is below.
      base_url: what takes the place of scheme and host in its address; None for the published ones.
      timeout: seconds without an answer.

    Returns:
      bool, whether something was made.

    Raises:
      ServerError, DamagedError: see `fetch` and `unpack`, or a file that is there already has a problem.
        What is damaged is removed if it has just come.
      FileExistsError: there is a directory of another content in the place of a zip's.
      OSError: it cannot be written.
    """
    directory = os.path.join(root, source.directory)
    missing = [name for name in source.files if not os.path.exists(os.path.join(directory, name))]
    problem_in = source.problem_in or (lambda path, name: None)
    for name in set(source.files) - set(missing):
        if wrong := problem_in(os.path.join(directory, name), name):
            raise DamagedError(f"{os.path.join(directory, name)} is there already, but {wrong}. Remove it to "
                               "have it fetched again.")
    if not missing:
        return False
    address = source.address
    if base_url is not None:
        address = base_url.rstrip("/") + urllib.parse.urlsplit(address).path
    if not source.address.endswith(".zip"):
        name = source.files[0]
        fetch(address, os.path.join(directory, name), timeout, lambda path: problem_in(path, name))
        return True
    if os.path.lexists(directory) and not (os.path.isdir(directory) and not os.listdir(directory)):
        raise FileExistsError(f"{directory} is there already, but lacks {', '.join(missing)}. Move it "
                              "away, or name another place.")
    archive = f"{directory}.zip"
    came = fetch(address, archive, timeout)
    try:
        unpack(archive, directory, source.files, problem_in)
    except DamagedError as error:
        if not came:
            raise DamagedError(f"{error} Remove the file to have it fetched again.") from error
        os.remove(archive)
        raise DamagedError(f"{error} It came from {address} and was removed again.") from error
    if came:
        os.remove(archive)
    else:
        logging.info("%s is unpacked, and no longer needed.", archive)
    return True


# --- Fetching --------------------------------------------------------------------------------------------


def address_problem(address):
    """Returns why nothing can be fetched from an address, in words, or None."""
    try:
        parts = urllib.parse.urlsplit(address)
        host = (parts.hostname or "").encode("idna")
        if parts.scheme not in ("http", "https") or not host:
            return "it must be http:// or https:// and a host"
        return None if parts.port != 0 else "there is no port 0"
    except ValueError as error:  # of UnicodeError, too
        return str(error)


def fetch(address, path, timeout=60, problem_in=None):
    """Fetches a file, unless it is there; goes on with what an earlier call has left of it.

    What has come so far is in `<path>.partial`, and `<path>.partial.json` says of which version (RFC 9110,
    section 13.1.5, If-Range): of a file that has changed meanwhile, or if the server cannot send a part, all
    is fetched again. A connection that breaks off is taken up again for as long as more comes.

    Args:
      address: of http or https.
      path: local file; its directory is made.
      timeout: seconds without an answer.
      problem_in: function of a path; returns what is wrong with the file that came, in words, or None.

    Returns:
      bool, whether it was fetched.

    Raises:
      ServerError: no answer, a refusal, a web page, nothing, or fewer bytes than announced; what to do.
      DamagedError: there is a problem in the file, which is removed.
      OSError: it cannot be written.
    """
    if os.path.exists(path):
        return False
    files.make_directories(os.path.dirname(path) or ".")
    partial, longest = f"{path}.partial", -1
    with files.translate_disk_errors(path):
        while True:
            total, broken = _fetch_rest(address, partial, timeout)
            there = os.path.getsize(partial)
            if not broken and there == (there if total is None else total):
                break
            so_far = f"after {there:,} of {'an unknown number of' if total is None else f'{total:,}'} bytes"
            if there <= longest:
                raise ServerError(f"{address}: the connection broke off {so_far}"
                                  f"{f' ({broken})' if broken else ''}. What has come is kept: run "
                                  "the same command again.")
            logging.info("The connection broke off %s; going on.", so_far)
            longest = there
        _check_content(address, partial, problem_in)
        if total is None:
            logging.warning("The server did not say how long %s is: its length is not checked.", address)
        os.replace(partial, path)
        with contextlib.suppress(FileNotFoundError):
            os.remove(f"{partial}.json")
    return True


def _check_content(address, partial, problem_in):
    """Removes a file that has come, and raises an error, if its content cannot be what was asked for."""
    with open(partial, "rb") as reader:
        start = reader.read(1000).lstrip().lower()
    try:
        if not os.path.getsize(partial):
            raise ServerError(f"{address}: the server sent an empty file. Try again later, or open the "
                              f"address {_CHECK_IN_BROWSER}")
        if start.startswith((b"<!doctype html", b"<html")):
            raise ServerError(f"{address}: {_WEB_PAGE}")
        if wrong := problem_in and problem_in(partial):
            raise DamagedError(f"{address}: what the server sent is not the file, as {wrong}. It was "
                               f"removed. Open the address {_CHECK_IN_BROWSER}")
    except (ServerError, DamagedError):
        os.remove(partial)
        with contextlib.suppress(FileNotFoundError):
            os.remove(f"{partial}.json")
        raise


def _fetch_rest(address, partial, timeout):
    """Adds to a partial file what it lacks, or begins it; returns the length of the whole, None if the server
    does not say it, and what broke the connection, None if nothing did."""
    offset, version = _partial_state(address, partial)
    response = _request(address, offset, version, timeout)
    if offset and not _is_rest_of_file(response, offset, version):
        logging.info("%s has changed, or is not sent in parts: fetching all of it.", address)
        if response is None or response.status == http.client.PARTIAL_CONTENT:
            response = _request(address, 0, None, timeout)
        offset = 0
    with response:
        if response.headers.get_content_type() == "text/html":
            raise ServerError(f"{address}: {_WEB_PAGE}")
        rest = response.headers.get("Content-Length")
        rest = int(rest) if rest and rest.isdecimal() and len(rest) <= _MAX_DIGITS else None
        check_free_space(partial, rest)
        with open(partial, "ab" if offset else "wb") as writer:
            if not offset:
                noted = {"address": address, "version": _version_of(response)}
                files.write_text(f"{partial}.json", json.dumps(noted) + "\n")
            broken = _copy(response, writer, rest, f"Fetching {address.rpartition('/')[2]}: MiB")
    return None if rest is None else offset + rest, broken


def _partial_state(address, partial):
    """Returns how many bytes of an address are in a partial file, and of which version; (0, None) if the
    server could not tell whether they are still good."""
    try:
        noted = files.read_json_object(f"{partial}.json")
        if noted.get("address") == address and noted.get("version"):
            return os.path.getsize(partial), noted["version"]
    except (FileNotFoundError, ValueError):
        pass
    return 0, None


def _version_of(response):
    """What tells versions of a file apart: a strong ETag, else the date; None if there is neither."""
    tag = response.headers.get("ETag", "W/")
    return response.headers.get("Last-Modified") if tag.startswith("W/") else tag


def _is_rest_of_file(response, offset, version):
    """Whether a server sends what was asked for: the rest of the same version."""
    if response is None or response.status != http.client.PARTIAL_CONTENT:
        return False
    span = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return bool(span) and int(span[1]) == offset and _version_of(response) in (version, None)


def _request(address, offset, version, timeout):
    """Returns the response to a request of a file from a byte on; None if it has no such byte."""
    headers = {"User-Agent": "bert-as-published"}
    if offset:
        headers.update({"Range": f"bytes={offset}-", "If-Range": version})
    try:
        opener = urllib.request.build_opener(_Redirects)
        return opener.open(urllib.request.Request(address, headers=headers), timeout=timeout)
    except ServerError:
        raise
    except urllib.error.HTTPError as error:
        with error:
            if offset and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                return None
            raise ServerError(f"{address}: the server answers {error.code} {_one_line(error.reason)}. Open "
                              f"the address {_CHECK_IN_BROWSER}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = _one_line(getattr(error, "reason", None) or error)
        raise ServerError(f"{address}: the server does not answer ({reason}). Check the network, and "
                          "$https_proxy if it is behind a proxy; then run the same command again: what has "
                          "come is kept.") from error


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to addresses of http and https."""

    def redirect_request(self, request, response, code, message, headers, address):
        if wrong := address_problem(address):
            response.close()
            raise ServerError(f"{request.full_url}: the server sends on to {_one_line(address)!r}, which is "
                              f"no address to fetch from ({_one_line(wrong)}). Open the first one "
                              f"{_CHECK_IN_BROWSER}")
        return super().redirect_request(request, response, code, message, headers, address)


def _one_line(text):
    """Returns a server's words in one line that is not too long."""
    return " ".join(str(text).split())[:_MAX_MESSAGE_LENGTH]


def _copy(response, writer, length, doing):
    """Writes what comes into a file; returns the error that ended it, None if it came to its end."""
    pieces = iter(lambda: response.read(_CHUNK_BYTES), b"")
    if length is not None:
        pieces = files.with_progress(pieces, -(-length // _CHUNK_BYTES), doing, every=50)
    try:
        for piece in pieces:
            writer.write(piece)
    except (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
        return error
    return None


def check_free_space(path, needed):
    """Raises an OSError, in words, if a disk has not as many free bytes; needed None is not known."""
    free = shutil.disk_usage(files.existing_parent(path)).free
    if needed is not None and needed > free:
        wrong, to_do = files.describe_disk_error(OSError(errno.ENOSPC, ""), path, needed)
        raise OSError(f"{path} could not be written: {wrong}. {to_do}")


# --- Unpacking -------------------------------------------------------------------------------------------


def unpack(archive, directory, expected, problem_in=None):
    """Unpacks the folder of a zip that holds the expected files, which becomes a new directory.

    The checksum that the zip has of each file is compared. What is outside of the folder is left out.

    Args:
      archive: path of the zip.
      directory: where to; not there, or empty.
      expected: names of files, at least one.
      problem_in: function of a path and of the name of an expected file; returns what is wrong with the
        content, in words, or None.

    Raises:
      DamagedError: it is no zip, a checksum differs, a file is missing or has a problem; or it is dangerous:
        a file would be written outside of the directory or over another one, or fills the disk. Nothing is
        left of it.
      OSError: it cannot be written.
    """
    aside = f"{directory}.partial"
    shutil.rmtree(aside, ignore_errors=True)  # of a run that was killed
    try:
        with zipfile.ZipFile(archive) as zipped, files.translate_disk_errors(directory):
            members = _members(zipped, archive, expected)
            check_free_space(directory, sum(info.file_size for _, info in members))
            for name, info in files.with_progress(members, len(members), f"Unpacking {archive}:"):
                path = os.path.join(aside, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with zipped.open(info) as reader, open(path, "xb") as writer:
                    shutil.copyfileobj(reader, writer, _CHUNK_BYTES)
            for name in expected if problem_in else ():
                if wrong := problem_in(os.path.join(aside, name), name):
                    raise DamagedError(f"{archive}: {name} in it cannot be used, as {wrong}.")
            os.rename(aside, directory)
    except _ZIP_ERRORS as error:
        raise DamagedError(f"{archive} is damaged, or no zip: {error}.") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _members(zipped, archive, expected):
    """Returns [(name below the folder that holds the expected files, its ZipInfo)]."""
    found = {info.filename: info for info in zipped.infolist() if not info.is_dir()}
    if len(found) > _MAX_FILES:
        raise DamagedError(f"{archive}: it has {len(found):,} files, and no published zip has as many; "
                           "nothing of it is unpacked.")
    for name in found:
        if name.startswith("/") or ".." in name.split("/") or "\\" in name:
            raise DamagedError(f"{archive}: {name!r} would be written outside of its directory; nothing of "
                               "this zip is unpacked.")
    folders = sorted({name[:-len(expected[0])] for name in found if f"/{name}".endswith(f"/{expected[0]}")},
                     key=len)
    for folder in folders:
        if all(folder + name in found and found[folder + name].file_size for name in expected):
            members = [info for info in zipped.infolist()
                       if info.filename.startswith(folder) and not info.is_dir()]
            if min(info.header_offset for info in members) < 0:
                raise DamagedError(f"{archive} is damaged: its beginning is missing.")
            total, size = sum(info.file_size for info in members), os.path.getsize(archive)
            if total > max(_SMALL_FILE_BYTES, _MAX_COMPRESSION_RATIO * size):
                raise DamagedError(f"{archive}: its {size:,} bytes would become {total:,}, as of no "
                                   "published zip. Nothing of this zip is unpacked.")
            return [(info.filename.removeprefix(folder), info) for info in members]
    raise DamagedError(f"{archive}: no folder of it has all of {', '.join(expected)}; it has "
                       f"{', '.join(sorted(found)[:10]) or 'nothing'}.")
