#!/bin/sh
# Lists every note: its file, how many lines it has, and its subject.
for note in notes/*.md; do
  [ -e "$note" ] || { echo "the notebook is empty"; exit 0; }
  echo "$note, $(wc -l < "$note" | tr -d ' ') lines: $(head -n 1 "$note" | sed 's/^# *//')"
done
