import { BaseSequencer, type TestSpecification } from "vitest/node";

/** A process is shared by files of one project that follow one another, so these are sorted together; those that are isolated first. */
export class ByProject extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const projects = [...new Set(sorted.map(({ project }) => project))].sort(
      (one, other) => Number(other.config.isolate) - Number(one.config.isolate),
    );
    return projects.flatMap((project) => sorted.filter((file) => file.project === project));
  }
}
