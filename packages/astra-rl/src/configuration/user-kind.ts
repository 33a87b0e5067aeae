import { AstraError, describeValue, UsageError } from "@astra-rl/torch";
import { hasMethods } from "../options/index.js";
import {
  messageOf,
  Embedder,
  Scorer,
  within,
  type Algorithm,
  type Credit,
  type CreditTable,
  type Evaluator,
  type Exchange,
  type Failure,
  type Graph,
  type LoggedValues,
  type MetricsLogger,
  type Model,
  type RewardTerm,
  type Sampler,
  type Score,
  type ScoreOutcome,
  type System,
  type SystemNeed,
  type Turn,
} from "../core/index.js";
import type { KindNeeds, KindParts, LoadableSystem, Made, Role, RunnableTrainer } from "../kinds/index.js";

/** A schema of any library that follows standardschema.dev, zod among them. */
export interface StandardSchema {
  readonly "~standard": {
    validate(value: unknown): StandardResult | Promise<StandardResult>;
  };
}

export type StandardResult =
  { readonly value: unknown; readonly issues?: undefined } | { readonly issues: readonly StandardIssue[] };

export interface StandardIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** A kind that a module of the user's brings. */
export interface UserKind<R extends Role = Role> {
  readonly role: R;
  /** Checks and completes its options; null: they are passed on as they stand in the file. */
  readonly schema: StandardSchema | null;
  /** What an algorithm needs of its system: see `Kind.needs`. */
  readonly needs: KindNeeds<Record<string, unknown>>;
  make(options: Record<string, unknown>, parts: KindParts[R]): Promise<Made[R]>;
}

/** What a module may export to score texts one by one: a number, an outcome, or either of them later. */
export type TextScorer = (
  text: string,
  options: Record<string, unknown>,
) => number | ScoreOutcome | Promise<number | ScoreOutcome>;

/** What a module may export to log steps. */
export type StepLogger = (
  step: number,
  values: LoggedValues,
  options: Record<string, unknown>,
) => void | Promise<void>;

/** What a module may export to judge turns one by one: a number, or one later. */
export type TurnScorer = (turn: Turn, options: Record<string, unknown>) => number | Promise<number>;

type Constructor = new (...values: never[]) => unknown;

/** How each role is made of a plain class or function, and what what was made must have. */
interface RoleRules<R extends Role> {
  /** Said of an export, or of what `make` gave, that does not fit. */
  wanted: string;
  fromClass(Class: Constructor, options: Record<string, unknown>, parts: KindParts[R]): unknown;
  /** null: a plain function makes no sense for this role. */
  fromFunction: ((name: string, fn: CallableFunction, options: Record<string, unknown>) => unknown) | null;
  /** null: it does not fit. */
  accept(made: unknown, name: string): Made[R] | null;
}

const create = (Class: Constructor, ...values: unknown[]): unknown =>
  new (Class as new (...all: unknown[]) => unknown)(...values);

const has = (value: unknown, ...methods: string[]): boolean => hasMethods(value, methods);

const RULES: { [R in Role]: RoleRules<R> } = {
  scorer: {
    wanted: "a Scorer (an object with the method score)",
    fromClass: (Class, options) => create(Class, options),
    fromFunction: (name, fn, options) => new FunctionScorer(name, fn as unknown as TextScorer, options),
    accept: (made, name) =>
      made instanceof Scorer ? made : has(made, "score") ? new BorrowedScorer(name, made as Scorer) : null,
  },
  embedder: {
    wanted: "an Embedder (an object with the method embed)",
    fromClass: (Class, options) => create(Class, options),
    fromFunction: null,
    accept: (made, name) =>
      made instanceof Embedder
        ? made
        : has(made, "embed")
          ? new BorrowedEmbedder(name, made as Embedder)
          : null,
  },
  term: {
    wanted: "a reward term (an object with the method score)",
    fromClass: (Class, options, parts) => create(Class, options, parts),
    fromFunction: (name, fn, options) => functionTerm(name, fn as unknown as TurnScorer, options),
    accept: (made, name) => (has(made, "score") ? completeTerm(made as RewardTerm, name) : null),
  },
  credit: {
    wanted: "a function from a graph to a Map of its nodes",
    fromClass: (Class, options, parts) => create(Class, options, parts),
    fromFunction: (_, fn, options) => (graph: Graph) => fn(graph, options) as CreditTable,
    accept: (made) => (typeof made === "function" ? (made as Credit) : null),
  },
  sampler: {
    wanted: "a Sampler (an object with the methods rollout and evalRollout)",
    fromClass: (Class, options, { system, prompts, seed }) =>
      create(Class, system, prompts, { ...options, seed }),
    fromFunction: null,
    accept: (made) =>
      has(made, "rollout", "rolloutMany", "evalRollout", "evalRolloutMany") ? (made as Sampler) : null,
  },
  algorithm: {
    wanted: "an Algorithm (an object with the methods flatten, collate and step)",
    fromClass: (Class, options, { system }) => create(Class, system, options),
    fromFunction: null,
    accept: (made) => (has(made, "flatten", "collate", "step", "checkSampler") ? (made as Algorithm) : null),
  },
  logger: {
    wanted: "a logger (an object with the methods open, log and close)",
    fromClass: (Class, options) => create(Class, options),
    fromFunction: (name, fn, options) => ({
      name,
      open: () => {},
      log: (step: number, values: LoggedValues) => (fn as unknown as StepLogger)(step, values, options),
      close: () => {},
    }),
    accept: (made, name) => (has(made, "open", "log", "close") ? named(made as MetricsLogger, name) : null),
  },
  system: {
    wanted: "a System (extend the class System, or ASTSystem)",
    fromClass: (Class, options, parts) =>
      isLoadable(Class) ? parts.load(Class, options) : create(Class, options, parts),
    fromFunction: null,
    accept: (made) =>
      has(made, "rolloutPromptWithTester", "rolloutPromptWithTarget", "advance", "parameters")
        ? (made as System)
        : null,
  },
  target: {
    wanted: `a Model (an object with the methods generate, release and dispose, a name, role: "target", work, and tellsLikelihood, with logprobs where that is true)`,
    fromClass: (Class, options, parts) => create(Class, options, parts),
    fromFunction: null,
    accept: (made) => (isTarget(made) ? made : null),
  },
  evaluator: {
    wanted: "an Evaluator (an object with the method evaluate)",
    fromClass: (Class, options, { sampler, prompts, threshold }) =>
      create(Class, sampler, prompts, { threshold, ...options }),
    fromFunction: null,
    accept: (made) => (has(made, "evaluate") ? (made as Evaluator) : null),
  },
  trainer: {
    wanted: "a trainer (an object with the methods train and dispose)",
    fromClass: (Class, options, { configuration, sampler, algorithm, options: own }) =>
      create(Class, configuration, sampler, algorithm, { ...own, ...options }),
    fromFunction: null,
    accept: (made) => (has(made, "train", "dispose") ? (made as RunnableTrainer) : null),
  },
};

function isTarget(made: unknown): made is Model {
  if (!has(made, "generate", "release", "dispose")) return false;
  const { name, role, work, tellsLikelihood } = made as Partial<Model>;
  return (
    typeof name === "string" &&
    role === "target" &&
    typeof work === "object" &&
    (tellsLikelihood === true ? has(made, "logprobs") : tellsLikelihood === false)
  );
}

/** Whether a class has a static `load` of its own making, so that its constructor is not what is called. */
const isLoadable = (Class: unknown): Class is LoadableSystem => has(Class, "load");

/**
 * Makes a kind of an export: an object with `make` and perhaps `schema`, a class, a target as it is, or, where the role
 * allows it, a plain function.
 *
 * @param reference for messages
 * @param name of the export
 * @throws UsageError when it is none of them
 */
export function userKind<R extends Role>(
  role: R,
  reference: string,
  name: string,
  value: unknown,
): UserKind<R> {
  const rules = RULES[role] as unknown as RoleRules<R>;
  const finish = async (make: () => unknown): Promise<Made[R]> => {
    let made: unknown;
    try {
      made = await make();
    } catch (cause) {
      if (cause instanceof AstraError) throw cause;
      throw new UsageError(`${reference}: making the ${role} failed: ${messageOf(cause)}`, { cause });
    }
    const accepted = rules.accept(made, name);
    if (accepted === null) {
      throw new UsageError(`${reference}: must make ${rules.wanted}, got ${describeValue(made)}`);
    }
    return accepted;
  };
  const needs = readNeeds(reference, value);
  if (typeof value === "object" && has(value, "make")) {
    const own = value as { schema?: unknown; make(options: object, parts: object): unknown };
    const schema = own.schema ?? null;
    if (schema !== null && !isStandardSchema(schema)) {
      throw new UsageError(
        `${reference}: schema must be a schema that follows standardschema.dev, such as zod's, got ${describeValue(schema)}`,
      );
    }
    return { role, schema, needs, make: (options, parts) => finish(() => own.make(options, parts)) };
  }
  if (isClass(value)) {
    return {
      role,
      schema: null,
      needs,
      make: (options, parts) => finish(() => rules.fromClass(value, options, parts)),
    };
  }
  if (role === "target" && isTarget(value))
    return { role, schema: null, needs, make: () => finish(() => value) };
  const { fromFunction } = rules;
  if (typeof value === "function" && fromFunction !== null) {
    return {
      role,
      schema: null,
      needs,
      make: (options) => finish(() => fromFunction(name, value as CallableFunction, options)),
    };
  }
  const forms = `an object with make(options, parts)${fromFunction === null ? " or a class" : ", a class or a function"}`;
  const article = /^[aeiou]/.test(role) ? "an" : "a";
  throw new UsageError(`${reference}: for ${article} ${role}, must be ${forms}, got ${describeValue(value)}`);
}

/** An object with `make`, or a class, may say in `needs` what its algorithm needs. */
function readNeeds(reference: string, value: unknown): KindNeeds<Record<string, unknown>> {
  const { needs = [] } = (value ?? {}) as { needs?: unknown };
  if (typeof needs === "function") return needs as KindNeeds<Record<string, unknown>>;
  const known: readonly unknown[] = ["baseline", "values"] satisfies SystemNeed[];
  if (Array.isArray(needs) && needs.every((need) => known.includes(need))) return needs as SystemNeed[];
  throw new UsageError(
    `${reference}: needs must be a list of ${known.join(", ")}, or a function from the options to one, got ` +
      describeValue(needs),
  );
}

function isClass(value: unknown): value is Constructor {
  return typeof value === "function" && /^class\b/.test(Function.prototype.toString.call(value));
}

function isStandardSchema(value: unknown): value is StandardSchema {
  const standard = (value as Partial<StandardSchema> | null)?.["~standard"];
  return typeof standard?.validate === "function";
}

/** A term of a plain function, turn by turn; what it throws for a turn is a failure of that turn alone. */
function functionTerm(name: string, scoreTurn: TurnScorer, options: Record<string, unknown>): RewardTerm {
  return {
    name,
    needs: [],
    score: (turns) =>
      Promise.all(
        turns.map(async (turn): Promise<number | Failure> => {
          try {
            return await scoreTurn(turn, options);
          } catch (error) {
            return { stage: "reward", message: `${name}: ${messageOf(error)}`, attempts: 1 };
          }
        }),
      ),
  };
}

/** A term of a module's as it is, with the name of the export and no needs where it names none. */
function completeTerm(term: RewardTerm, name: string): RewardTerm {
  if (typeof term.name === "string" && Array.isArray(term.needs)) return term;
  return Object.assign(Object.create(term) as RewardTerm, {
    name: typeof term.name === "string" ? term.name : name,
    needs: Array.isArray(term.needs) ? term.needs : [],
  });
}

/** A logger of a module's as it is, with the name of the export where it names none. */
function named(logger: MetricsLogger, name: string): MetricsLogger {
  if (typeof logger.name === "string") return logger;
  // Called on the object itself, which may have private fields.
  return {
    name,
    open: (run) => logger.open(run),
    log: (step, values) => logger.log(step, values),
    close: (outcome) => logger.close(outcome),
  };
}

/** Scores by a plain function, text by text; what it throws for a text is a failure of that text alone. */
class FunctionScorer extends Scorer {
  constructor(
    readonly name: string,
    readonly scoreText: TextScorer,
    readonly options: Record<string, unknown>,
  ) {
    super();
  }

  // What a function throws at once is thrown later as well.
  async #ask(text: string): Promise<number | ScoreOutcome> {
    return this.scoreText(text, this.options);
  }

  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    return Promise.all(
      texts.map(async (text): Promise<ScoreOutcome> => {
        try {
          // Of each text by itself, so that one that is never answered costs only itself.
          const outcome = await within(this.deadline, this.name, this.#ask(text));
          return typeof outcome === "object" && outcome !== null
            ? outcome
            : ({ score: outcome } satisfies Score);
        } catch (error) {
          return { failure: { stage: "scorer", message: messageOf(error), attempts: 1 } };
        }
      }),
    );
  }
}

/** An object that scores without being one of our Scorers, since it is plain or from another copy of this package. */
class BorrowedEmbedder extends Embedder {
  readonly name: string;
  readonly similarity: number;

  constructor(
    name: string,
    readonly inner: Pick<Embedder, "embed"> & Partial<Embedder>,
  ) {
    super();
    this.name = typeof inner.name === "string" ? inner.name : name;
    const { similarity } = inner;
    if (!(typeof similarity === "number" && similarity > 0 && similarity <= 1)) {
      throw new UsageError(
        `${this.name}: similarity, the cosine from which on two texts count as variants of one, must be above 0 and at ` +
          `most 1, got ${describeValue(similarity)}`,
      );
    }
    this.similarity = similarity;
  }

  override embed(texts: readonly string[]): Promise<readonly Float32Array[]> {
    return this.inner.embed(texts);
  }

  override dispose(): void {
    this.inner.dispose?.();
  }
}

class BorrowedScorer extends Scorer {
  readonly name: string;
  override readonly labelNames: readonly string[];

  constructor(
    name: string,
    readonly inner: Pick<Scorer, "score"> & Partial<Scorer>,
  ) {
    super();
    this.name = typeof inner.name === "string" ? inner.name : name;
    this.labelNames = inner.labelNames ?? [];
  }

  override get keepsRoles(): boolean {
    return this.inner.keepsRoles ?? typeof this.inner.scoreExchanges === "function";
  }

  override score(texts: readonly string[]): Promise<ScoreOutcome[]> {
    return this.inner.score(texts);
  }

  override scoreExchanges(exchanges: readonly Exchange[]): Promise<ScoreOutcome[]> {
    return this.keepsRoles ? this.inner.scoreExchanges!(exchanges) : super.scoreExchanges(exchanges);
  }

  override dispose(): void {
    this.inner.dispose?.();
  }
}
