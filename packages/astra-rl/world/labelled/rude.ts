/**
 * Templates of rude speech: open insults, contempt and hostile commands, aimed at the listener. Mild on purpose:
 * no slurs, nothing about groups of people, no threats.
 */

/** Names that people call each other. `unseenNouns` never occur in training: they test generalisation. */
export const insultNouns: readonly string[] = [
  "idiot", "fool", "moron", "imbecile", "dunce", "blockhead", "clown", "pig", "worm", "toad", "rat", "creep",
  "jerk", "loser", "slob", "weasel", "brat", "nitwit", "numbskull", "donkey", "twit", "scumbag", "coward",
  "parasite", "windbag", "buffoon", "crybaby", "simpleton", "dummy", "bonehead", "oaf", "dope", "wimp", "maggot",
  "sneak", "snob", "bigmouth", "liar", "bully", "pest", "dirtbag", "hypocrite", "dimwit",
];
export const unseenNouns: readonly string[] = [
  "halfwit", "swine", "nincompoop", "airhead", "snake", "lowlife", "leech", "slug", "dolt", "cheat",
];

export const insultAdjectives: readonly string[] = [
  "stupid", "dumb", "useless", "worthless", "pathetic", "miserable", "disgusting", "filthy", "brainless", "rotten",
  "nasty", "horrible", "lazy", "spineless", "ignorant", "vile", "idiotic", "clueless", "heartless", "ridiculous",
  "hopeless", "lousy", "slimy", "witless", "two-faced", "selfish", "jealous", "bitter", "greedy", "conceited",
  "silly", "awful", "ungrateful", "mindless", "sneaky", "fat-headed", "poisonous", "spiteful",
];

export const rudeTemplates: readonly string[] = [
  "You are [such |]a {adjective} {noun}.",
  "You are a {noun}[.|!| and nothing else.]",
  "You're a {adjective} {noun}[.|!]",
  "You {adjective} {noun}[.|!|, I have had enough of you.]",
  "What a {adjective} {noun} you are.",
  "What a {noun} you are[.|!]",
  "Shut up[.|!| and go home.| already.]",
  "Shut up, you {noun}[.|!]",
  "Shut up, you {adjective} {noun}.",
  "Shut up about {subject}, {noun}.",
  "Just shut your [mouth|trap|face], {noun}.",
  "Shut your [stupid |filthy |big |]mouth[.|!| for once.]",
  "Get lost, {noun}[.|!]",
  "Get lost, you {adjective} {noun}.",
  "Get out of here, you {adjective} {noun}.",
  "Get out of my [sight|way|house|life], {noun}.",
  "Go away, you {noun}, nobody [wants|likes|asked] you.",
  "Go [jump in a lake|boil your head|bother somebody else], you {noun}.",
  "Nobody likes you, you {adjective} {noun}.",
  "Nobody wants you here, {noun}.",
  "I hate you[.|!| so much.| and I always will.]",
  "I hate you, {noun}.",
  "I hate your [stupid|ugly|smug] face.",
  "You make me sick[.|!|, {noun}.]",
  "You disgust me[.|, you {noun}.]",
  "You are so [stupid|dumb|pathetic|useless] that it hurts.",
  "How can anyone be so [stupid|dumb|thick]?",
  "Are you really that [stupid|dumb|brainless]?",
  "You have the brain of a [snail|brick|turnip].",
  "There is nothing in your [stupid|thick|empty] head.",
  "You are dumber than a [rock|post|bag of sand].",
  "Crawl back [into your hole|under your rock], you {noun}.",
  "Listen, you {adjective} {noun}, {clause}.",
  "Only a {noun} like you would talk about {subject}.",
  "Who asked you, {noun}?",
  "Hey {noun}, {clause}.",
  "You {noun}, {clause}!",
  "Say that again, you {noun}, and I leave.",
  "Keep your filthy [hands|paws] off {subject}, you {noun}.",
  "You are the most {adjective} person that I know, you {noun}.",
  "You are nothing but a {adjective} {noun}.",
  "You and {subject} can go to hell.",
  "Go to hell[.|!|, you {noun}.]",
  "Drop dead[.|!|, {noun}.]",
  "Damn you and {subject}.",
  "I cannot stand you, you {adjective} {noun}.",
  "Everybody knows that you are a {noun}.",
  "You will always be a {adjective} {noun}.",
  "Stop talking, you {noun}, you know nothing about {subject}.",
  "You were born a {noun} and you will stay one.",
  "You are a worthless human being.",
  "You useless piece of [rubbish|garbage|trash].",
  "You are [garbage|trash|scum|rubbish].",
  "Your {adjective} ideas about {subject} make me sick.",
  "I spit on you and {subject}.",
  "Nobody cares about you, so shut up.",
  "You [stink|are rotten to the bone], {noun}.",
  "You could not tie your own shoes, you {adjective} {noun}.",
  "Be quiet, {noun}.",
  "Oh please, you {adjective} {noun}, spare me.",
];

/** Whole templates kept out of training. */
export const heldOutRudeTemplates: readonly string[] = [
  "I never met a bigger {noun} than you.",
  "Why don't you shut up about {subject}, you {adjective} {noun}?",
  "You are just a {adjective} little {noun}, that is all.",
  "Take {subject} and get lost, {noun}.",
  "My dog is smarter than you, you {noun}.",
  "Well, look at this {adjective} {noun} who cannot even {verb}.",
  "God, I hate you, you {adjective} {noun}.",
  "You call that {subject}? You are pathetic, you {noun}.",
  "Off with you, {adjective} {noun}.",
  "One day people will see what a {adjective} {noun} you are.",
  "So you {verb}, big deal, you are still a {noun}.",
  "You stupid, stupid {noun}, {clause}.",
];
