// The kinds of contrib, which a configuration may select like any other. Imported for its effect, before a configuration is read.
import { registerKinds } from "@astra-rl/assembly";
import * as contrib from "@astra-rl/contrib";

registerKinds(contrib);
