import { execute, onPath } from "./command.mjs";

/**
 * How apt-get can be called here: as root, through sudo without a password, or not at all.
 *
 * @returns {{ command: readonly string[] | null, why: string }} `why`: the reason why it cannot, as a clause
 */
export function aptAccess() {
  const aptGet = onPath("apt-get");
  if (aptGet === null) return { command: null, why: "this system has no apt-get" };
  if (process.getuid?.() === 0) return { command: [aptGet], why: "" };
  const sudo = onPath("sudo");
  if (sudo === null) return { command: null, why: "apt-get needs root, and there is no sudo" };
  if (!execute(sudo, ["-n", "true"], { timeoutMilliseconds: 5000 }).ok) {
    return { command: null, why: "apt-get needs root, and sudo asks for a password" };
  }
  return { command: [sudo, "-n", aptGet], why: "" };
}

/**
 * Installs Debian packages without the recommended ones, updating the package lists only if they lack one of them or
 * are too old.
 *
 * @param {readonly string[]} packages
 * @param {(line: string) => void} say
 * @returns {{ ok: boolean, why: string }}
 */
export function aptInstall(packages, say) {
  const { command, why } = aptAccess();
  if (command === null) return { ok: false, why };
  const [program, ...prefix] = command;
  // sudo drops the environment, so the setting is passed as an argument.
  const env = { DEBIAN_FRONTEND: "noninteractive" };
  const apt = (...args) =>
    execute(program, [...prefix, "-o", "Dpkg::Use-Pty=0", "-o", "DPkg::Lock::Timeout=120", ...args], { env });
  const update = () => {
    say("refreshing the lists of Debian packages (apt-get update)");
    return apt("update", "-qq");
  };
  const known = packages.every((name) => execute("apt-cache", ["show", name]).ok);
  if (!known) update();
  say(`installing ${packages.join(" and ")} (apt-get install)`);
  let result = apt("install", "-y", "-qq", "--no-install-recommends", ...packages);
  if (!result.ok && known) {
    update();
    result = apt("install", "-y", "-qq", "--no-install-recommends", ...packages);
  }
  return { ok: result.ok, why: result.ok ? "" : `apt-get install failed: ${result.reason}` };
}
