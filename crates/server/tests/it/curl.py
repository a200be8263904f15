#!/usr/bin/env python3
"""What the documents use of curl, for machines that have none: -s -S -f -N -H -d -X, streamed."""

import http.client
import sys
import urllib.error
import urllib.request

OF_ONE_LETTER = {"s", "S", "f", "N"}


def main():
    flags, headers, data, method, url = set(), {}, None, None, None
    words = iter(sys.argv[1:])
    for word in words:
        if word == "-H":
            name, _, value = next(words).partition(":")
            headers[name.strip()] = value.strip()
        elif word == "-d":
            data = next(words).encode()
        elif word == "-X":
            method = next(words)
        elif word.startswith("-"):
            unknown = set(word[1:]) - OF_ONE_LETTER
            if unknown:
                sys.exit(f"curl: this stand-in does not know {word}")
            flags |= set(word[1:])
        else:
            url = word
    request = urllib.request.Request(url, data=data, headers=headers, method=method)
    # Only servers of this machine are asked.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        answer = opener.open(request)
    except urllib.error.HTTPError as error:
        if "f" in flags:
            print(f"curl: (22) The requested URL returned error: {error.code}", file=sys.stderr)
            return 22
        answer = error
    except OSError as error:
        print(f"curl: (7) {error}", file=sys.stderr)
        return 7
    try:
        while chunk := answer.read1(65536):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
    except (OSError, ValueError, http.client.HTTPException) as error:  # The server broke off.
        print(f"curl: (18) {error}", file=sys.stderr)
        return 18
    return 0


if __name__ == "__main__":
    sys.exit(main())
