import { UsageError } from "@astra-rl/base";

/** A row of a file, by column. */
export type FileRow = Readonly<Record<string, unknown>>;

/** Selects the columns of a file that are read. */
export type ChooseColumns = (columns: readonly string[]) => readonly string[];

/** @throws UsageError for a file that is not Parquet, or is damaged */
export async function readParquetRows(
  bytes: Buffer,
  choose: ChooseColumns,
  path: string,
): Promise<FileRow[]> {
  // Readers are imported where a file needs them, so that other commands start sooner.
  const { parquetMetadata, parquetReadObjects, parquetSchema } = await import("hyparquet");
  // Copied, because a Node Buffer may be a view of a larger ArrayBuffer.
  const file = new Uint8Array(bytes).buffer;
  const metadata = explained(path, "Parquet", () => parquetMetadata(file));
  const columns = [...choose(parquetSchema(metadata).children.map(({ element }) => element.name))];
  try {
    const compressors = await loadCompressors(path);
    return (await parquetReadObjects({ file, metadata, columns, compressors })) as FileRow[];
  } catch (cause) {
    throw cause instanceof UsageError ? cause : notReadable(path, "Parquet", cause);
  }
}

/** Imported lazily: the import reserves gigabytes of address space, which fails under a memory limit. */
async function loadCompressors(path: string) {
  try {
    return (await import("hyparquet-compressors")).compressors;
  } catch (cause) {
    if (!(cause instanceof RangeError)) throw cause;
    throw new UsageError(
      "address-space-limit",
      `${path}: cannot be unpacked within the limit of address space; raise it (ulimit -v), or give the file as JSON lines`,
      { cause },
    );
  }
}

/**
 * Reads both Arrow formats: the file format, and the stream format in which the Python `datasets` library stores
 * data.
 *
 * @throws UsageError for a file that is not Arrow, or is damaged
 */
export async function readArrowRows(bytes: Buffer, choose: ChooseColumns, path: string): Promise<FileRow[]> {
  const { tableFromIPC } = await import("@uwdata/flechette");
  const table = explained(path, "Arrow", () => tableFromIPC(new Uint8Array(bytes)));
  const columns = choose(table.names.map(String));
  return explained(path, "Arrow", () => {
    const values = columns.map((name) => [...table.getChild(name)] as unknown[]);
    return Array.from({ length: table.numRows }, (_, row) =>
      Object.fromEntries(columns.map((name, at) => [name, values[at]![row]])),
    );
  });
}

function explained<T>(path: string, format: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw notReadable(path, format, cause);
  }
}

const notReadable = (path: string, format: string, cause: unknown) =>
  new UsageError("malformed-file", `${path}: cannot be read as ${format}: ${(cause as Error).message}`, {
    cause,
  });
