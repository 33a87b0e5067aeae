export interface RunnableBlock {
  language: "bash" | "ts";
  code: string;
  /** Of the opening fence, from 1. */
  line: number;
  isOfNight: boolean;
}
export function runnableBlocks(markdown: string): RunnableBlock[];
