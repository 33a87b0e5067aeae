"""Prompt files in columns, as the Python libraries write them.

    pip install pyarrow==25.0.1 datasets==5.0.1
    python make_tables.py
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
from datasets import Dataset

FOLDER = Path(__file__).parent
PROMPTS = ["How are you?", "Grüße — 日本 👋", "two\nlines", "How are you?"]
MESSAGES = [
    [{"role": "user", "content": prompt}, {"role": "assistant", "content": "Fine."}]
    for prompt in PROMPTS
]
table = pa.table({"id": range(4), "prompt": PROMPTS, "text": [p.upper() for p in PROMPTS], "messages": MESSAGES})

for compression in ["none", "snappy", "gzip", "zstd"]:
    pq.write_table(table, FOLDER / f"{compression}.parquet", compression=compression)
pq.write_table(pa.table({"prompt": ["a", None]}), FOLDER / "missing.parquet")

# The stream format, as `datasets` keeps its own files, and the file format.
folder = FOLDER / "saved"
Dataset(table).save_to_disk(folder)
(folder / "data-00000-of-00001.arrow").rename(FOLDER / "stream.arrow")
for path in folder.iterdir():
    path.unlink()
folder.rmdir()
feather.write_feather(table, FOLDER / "file.arrow", compression="uncompressed")
