#!/bin/sh
# Says where a Chromium is, and gets Debian's if there is none and that is possible. The browser test says so, too, if
# there is none.
found() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
[ -n "$ASH_TEST_CHROMIUM" ] && exit 0
found >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  { apt-get install -y --no-install-recommends chromium || { apt-get update && apt-get install -y --no-install-recommends chromium; }; } >&2
fi
found >/dev/null || echo "THERE IS NO CHROMIUM, and it could not be installed: the SDK will not be tried in a browser" >&2
exit 0
