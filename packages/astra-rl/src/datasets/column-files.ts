import { tableFromIPC } from "@uwdata/flechette";
import { UsageError } from "@astra-rl/torch";
import { parquetMetadata, parquetReadObjects, parquetSchema } from "hyparquet";

/** One column of a file, row by row. */
export interface FileColumn {
  column: string;
  values: readonly unknown[];
}

/** Chooses among the columns of a file. */
export type ChooseColumn = (columns: readonly string[]) => string;

/** @throws UsageError for a file that is no Parquet, or is damaged */
export async function readParquetColumn(
  bytes: Buffer,
  choose: ChooseColumn,
  path: string,
): Promise<FileColumn> {
  // A copy: a buffer of Node's may be a part of a larger one.
  const file = new Uint8Array(bytes).buffer;
  const metadata = explained(path, "Parquet", () => parquetMetadata(file));
  const column = choose(parquetSchema(metadata).children.map(({ element }) => element.name));
  try {
    const compressors = await loadCompressors(path);
    const rows = await parquetReadObjects({ file, metadata, columns: [column], compressors });
    return { column, values: rows.map((row) => (row as Record<string, unknown>)[column]) };
  } catch (cause) {
    throw cause instanceof UsageError ? cause : notReadable(path, "Parquet", cause);
  }
}

/** Only now: they reserve gigabytes of addresses when they are imported, which a limit may not leave. */
async function loadCompressors(path: string) {
  try {
    return (await import("hyparquet-compressors")).compressors;
  } catch (cause) {
    if (!(cause instanceof RangeError)) throw cause;
    throw new UsageError(
      `${path}: cannot be unpacked within the limit of address space; raise it (ulimit -v), or give the file as JSON lines`,
      { cause },
    );
  }
}

/**
 * Both of Arrow's formats: that of files, and the stream that the Python library keeps datasets in.
 *
 * @throws UsageError for a file that is no Arrow, or is damaged
 */
export async function readArrowColumn(
  bytes: Buffer,
  choose: ChooseColumn,
  path: string,
): Promise<FileColumn> {
  const table = explained(path, "Arrow", () => tableFromIPC(new Uint8Array(bytes)));
  const column = choose(table.names.map(String));
  return explained(path, "Arrow", () => ({ column, values: [...table.getChild(column)].map(plain) }));
}

/** Lists come as arrays of any kind, rows as objects whose fields are read on demand. */
function plain(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(plain);
  return value;
}

function explained<T>(path: string, format: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw notReadable(path, format, cause);
  }
}

const notReadable = (path: string, format: string, cause: unknown) =>
  new UsageError(`${path}: cannot be read as ${format}: ${(cause as Error).message}`, { cause });
