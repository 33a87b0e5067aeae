import { statSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { fileDigest, UsageError, didYouMean } from "@astra-rl/base";
import { messageOf } from "@astra-rl/method";
import { userKind, type ModuleRole, type UserKind } from "./user-kind.js";

/** An imported module named by a `type:`. */
export interface UserModule<R extends ModuleRole = ModuleRole> {
  /** Absolute path and export, joined by "#", as in a resolved configuration. */
  reference: string;
  /** The module's file. */
  file: string;
  /** Hash of the file's bytes, without the module's own imports. */
  sha256: string;
  kind: UserKind<R>;
}

/** True for `./file.js#name`, `/folder/file.js#name` and `package#name`. */
export const isModuleReference = (type: string) => type.includes("#");

/** The file or package, and the export, of a reference to a module. */
export function moduleParts(reference: string): { module: string; name: string } {
  const at = reference.lastIndexOf("#");
  return { module: reference.slice(0, at), name: reference.slice(at + 1) };
}

/** Whether a type can only have been meant as a file. */
export const looksLikeFile = (type: string) => /^(\.{0,2}\/|file:)|\.[cm]?[jt]s$/.test(type);

/**
 * Imports the module named by a `type:`, which runs its code.
 *
 * @param base the folder that the reference is relative to
 * @throws UsageError if the file, package or export is missing, if loading fails, or if the export is unsuitable
 */
export async function loadUserModule<R extends ModuleRole>(
  role: R,
  reference: string,
  base = ".",
): Promise<UserModule<R>> {
  const { module: specifier, name } = moduleParts(reference);
  if (specifier === "" || name === "") {
    throw new UsageError(
      "malformed-reference",
      `must look like ./file.js#name or package#name, got ${JSON.stringify(reference)}`,
    );
  }
  const file = await locate(specifier, resolve(base));
  let exported: Record<string, unknown>;
  try {
    exported = (await import(pathToFileURL(file).href)) as Record<string, unknown>;
  } catch (cause) {
    const kind = cause instanceof Error && cause.name !== "Error" ? `${cause.name}: ` : "";
    const advice =
      cause instanceof SyntaxError && /\b(export|import)\b/.test(cause.message)
        ? '; name it .mjs, or put {"type": "module"} into the package.json beside it'
        : "";
    throw new UsageError(
      "module-unloadable",
      `cannot load ${file}: ${kind}${messageOf(cause).split("\n")[0]}${advice}`,
      {
        cause,
      },
    );
  }
  // CommonJS modules whose exports cannot be detected statically have only a default export.
  const rest = exported["default"] as Record<string, unknown> | null | undefined;
  const value = exported[name] ?? (typeof rest === "object" ? rest?.[name] : undefined);
  if (value === undefined) {
    const names = Object.keys(exported);
    const all = `; it exports ${names.length > 0 ? names.join(", ") : "nothing"}`;
    throw new UsageError("unknown-export", `${file} exports no "${name}"${didYouMean(name, names) || all}`);
  }
  const absolute = `${file}#${name}`;
  return { reference: absolute, file, sha256: fileDigest(file), kind: userKind(role, absolute, name, value) };
}

async function locate(specifier: string, folder: string): Promise<string> {
  if (looksLikeFile(specifier)) {
    const file = specifier.startsWith("file:") ? fileURLToPath(specifier) : resolve(folder, specifier);
    const found = statSync(file, { throwIfNoEntry: false });
    if (found === undefined) throw new UsageError("file-not-found", `there is no such file: ${file}`);
    if (!found.isFile()) throw new UsageError("not-a-file", `${file} must be a file, got a folder`);
    return file;
  }
  // Imported here, so that commands without a package start sooner.
  const { resolve: resolvePackage } = await import("import-meta-resolve");
  try {
    // Resolved like an import statement in that folder; "noop.js" need not exist.
    return fileURLToPath(resolvePackage(specifier, pathToFileURL(join(folder, "noop.js")).href));
  } catch (cause) {
    throw new UsageError(
      "package-not-found",
      `cannot find the package "${specifier}" from ${folder}; install it there, or write ./${specifier} for a file ` +
        `(${messageOf(cause).split("\n")[0]})`,
      { cause },
    );
  }
}
