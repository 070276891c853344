"""Step 3: notes the file in an index. The entry is named by its content, so a
step that runs again after a crash writes the same entry once more.
"""

import fcntl
import json
import os
import sys


def main():
    call = json.load(sys.stdin)
    context = call["context"]
    entry = {"path": call["payload"]["path"], "bytes": context["bytes"],
             "thumbnail": context.get("thumbnail"), "task": call["task"]["id"]}
    # Two tasks may be here at once.
    with open("out/index.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            with open("out/index.json") as file:
                index = json.load(file)
        except FileNotFoundError:
            index = {}
        index[context["digest"]] = entry
        with open("out/index.draft", "w") as file:
            json.dump(index, file, indent=1)
        os.replace("out/index.draft", "out/index.json")
    json.dump({"indexed": True, "entries": len(index)}, sys.stdout)


main()
