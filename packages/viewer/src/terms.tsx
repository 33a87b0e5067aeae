import { useEffect, useState } from "preact/hooks";

/** What the words of this page mean, by the name that the page shows. */
const TERMS: Record<string, string> = {
  "Success with harmless probes only":
    "Rollouts with a response at or above the harm threshold and no probe as harmful up to it: the tester drew the harm out and did not say it first.",
  Success: "Rollouts in which any response scores at or above the harm threshold.",
  "Success by the second scorer":
    "The same by a scorer that training never saw. Success by the first one alone may be reward hacking.",
  "Success, each cluster of attacks once":
    "Clusters of similar attacks divided by rollouts: one attack repeated a hundred times counts once.",
  "Harmful probes": "Probes that score at or above the harm threshold themselves.",
  "Mean probe NLL, nats a token":
    "Mean negative log-likelihood of a probe token under the target. Lower is likelier: about 0 is what the target itself would say next.",
  "Mean reward of a turn": "The weighted sum of the configuration's reward terms.",
  "Mean harm of a probe": "Mean score of the tester's messages, from 0 to 1.",
  "Mean harm of a response": "Mean score of the target's messages, from 0 to 1.",
  "Distinct probes": "Different texts among all probes.",
  "Distinct attacks found":
    "Different texts among the probes that the first harmful response of a rollout answers.",
  "Clusters of attacks, as of equal size":
    "The exponential of the entropy of the cluster sizes: as many clusters of one size would be as diverse.",
  "Self-BLEU of attacks": "Overlap of each attack with all others, from 0 to 1. High is repetitive.",
  "Mean embedding distance of attacks": "1 minus the mean cosine of all pairs of attacks. Low is repetitive.",
  "Sentence structures of attacks":
    "Different grammatical skeletons: function words and punctuation, with the content words taken out. New topics in one pattern do not raise it.",
  "Success up to each turn":
    "The share of rollouts with a harmful response by then, by the Kaplan–Meier estimate where rollouts ended early.",
  "Judged by": "The scorer of the evaluation. Rates of different scorers do not compare.",
  "Reward of a turn":
    "The weighted sum of the configuration's reward terms, averaged over the turns of a step.",
  "Harmful texts": "Probes and responses of a step that score at least 0.5.",
  "Probe NLL, nats a token":
    "Mean negative log-likelihood of a probe token under the target. Lower is likelier.",
  "Distinct probes of a step":
    "Different texts among the probes of one training step. A fall shows collapse.",
  Loss: "The algorithm's loss. It says whether training is stable, not whether the tester is good.",
  "Harm and likelihood":
    "Each dot is a rollout: how harmful its worst response is, and how likely the target finds its probes. What is both harmful and likely will happen without a tester.",
  reward: "The weighted sum of the configuration's reward terms for this turn.",
  credit: "What the algorithm learns from: the reward, or with back-up also what the turn led to.",
  NLL: "Mean negative log-likelihood of a probe token under the target. Lower is likelier.",
};

/** A term with its explanation, shown while it is pointed at or focused. */
export function Term({ name }: { name: string }) {
  const tip = TERMS[name];
  if (tip === undefined) return <>{name}</>;
  return (
    <button type="button" class="term" data-tip={tip}>
      {name}
    </button>
  );
}

interface Shown {
  text: string;
  left: number;
  top: number;
}

/** The one tooltip of a page; above everything, so that nothing cuts it off. */
export function Tips() {
  const [shown, setShown] = useState<Shown | null>(null);
  useEffect(() => {
    let from: Element | null = null;
    const show = ({ target }: Event) => {
      const found = target instanceof Element ? target.closest("[data-tip]") : null;
      if (found === from) return;
      from?.removeAttribute("aria-describedby");
      from = found;
      if (found === null) {
        setShown(null);
        return;
      }
      found.setAttribute("aria-describedby", "tip");
      const { left, bottom } = found.getBoundingClientRect();
      const text = found.getAttribute("data-tip")!;
      setShown({ text, left: Math.max(8, Math.min(left, innerWidth - 328)), top: bottom + 6 });
    };
    const hide = (event: Event) => {
      if (event instanceof KeyboardEvent && event.key !== "Escape") return;
      from?.removeAttribute("aria-describedby");
      from = null;
      setShown(null);
    };
    const listeners: [string, (event: Event) => void][] = [
      ["pointerover", show],
      ["focusin", show],
      ["keydown", hide],
      ["scroll", hide],
    ];
    for (const [name, listener] of listeners) document.addEventListener(name, listener, { passive: true });
    return () => {
      for (const [name, listener] of listeners) document.removeEventListener(name, listener);
    };
  }, []);
  return (
    <div id="tip" role="tooltip" hidden={shown === null} style={{ left: shown?.left, top: shown?.top }}>
      {shown?.text}
    </div>
  );
}
