/** Whether the machine has it; also where another one is in force. */
export function hasInstructionSet(isa: string): boolean;

/** Why tiles cannot be emulated here, or need not be; otherwise the library that stands for them. */
export function emulatedTiles(): { library: string } | { why: string };
