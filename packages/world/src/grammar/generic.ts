/** Lines that fit any subject, by their function in a conversation. Same template language as the topics. */

/** Friendly questions. */
export const genericAsk: readonly string[] = [
  "How did it go?",
  "How do you feel about it?",
  "Was it fun?",
  "Really? Tell me more.",
  "And what comes next?",
  "What do the others say?",
  "Is there anything that I can do?",
  "What was the best part?",
];

/** Calm replies of the owner. */
export const genericCalm: readonly string[] = [
  "It went [well|better than I hoped], thank you.",
  "Thank you, that is kind of you.",
  "Yes, I am [glad|happy] about it.",
  "I will tell you more [next time|tomorrow].",
  "It was a good day, all in all.",
  "So far so good, we will see.",
  "Thanks for asking.",
  "I hope so too.",
];

/** Friendly or neutral remarks of the other speaker. */
export const genericWarm: readonly string[] = [
  "That sounds [lovely|nice|like a good time].",
  "I am happy for you.",
  "Good luck with it.",
  "Well done.",
  "I had no idea, how interesting.",
  "You must be [pleased|proud].",
  "Oh, I see.",
  "Let me know how it goes.",
  "My [sister|cousin] does the same, and she loves it.",
];

/** The other speaker makes peace. */
export const genericSorry: readonly string[] = [
  "I am sorry, I did not mean it like that.",
  "Sorry, that was unfair of me.",
  "You are right, let us talk about something else.",
  "I was only joking, please do not be cross.",
  "I take it back.",
  "I did not want to hurt you.",
];

/** The owner after an apology, or after calming down. */
export const genericMended: readonly string[] = [
  "It is all right, do not worry.",
  "Fine, let us forget it.",
  "Thank you for saying so.",
  "No harm done.",
];

/** Lines that provoke the owner when repeated, on no particular subject; every line is innocent. */
export const genericNettle: readonly string[] = [
  "Are you quite sure?",
  "Have you asked [somebody|an expert] about it?",
  "You could look it up.",
  "I would have done it differently.",
  "By the way, [what is for dinner|did you see my umbrella|who won the match]?",
  "I read something about that [in the paper|last week].",
  "Let me give you a little advice.",
  "You could ask my [cousin|sister], she knows all about it.",
  "And what will you do if it goes wrong?",
  "Is there not an easier way?",
  "Did you write it down somewhere?",
  "It may all look different next year.",
  "Have you thought it over?",
  "That reminds me of my [holiday|old teacher].",
];

/** Open insults by the other speaker: rare. */
export const genericInsult: readonly string[] = [
  "You are [an idiot|a fool|a moron].",
  "Shut up, you [bore|fool].",
  "You stupid [fool|clown].",
  "You are a [pathetic|useless|miserable] [loser|worm].",
  "What a [moron|nasty creep|stupid clown] you are.",
  "Get lost, you [idiot|toad].",
  "I hate you, you [pig|creep].",
  "You make me sick, you [clown|fool].",
];

/** The owner is put off. */
export const genericStung: readonly string[] = [
  "I did think of that, thank you.",
  "I do not see it that way.",
  "I would rather do it my way.",
  "If you say so.",
  "We will manage, thank you.",
  "I did not ask for advice.",
  "Yes, you have told me.",
  "Can we leave it at that?",
];

/** The owner is angry, but holds back. */
export const genericAngry: readonly string[] = [
  "That is enough now.",
  "Please leave it.",
  "You are starting to make me angry.",
  "Do you ever listen to me?",
  "I have had it with your [questions|remarks].",
  "Say one more thing and I am going.",
  "Will you let me finish for once?",
  "Do not push me any further.",
  "I am this close to losing my temper.",
  "Leave me in peace, I mean it.",
];

/** The owner's temper is lost. */
export const genericRude: readonly string[] = [
  "Oh, shut up, you [stupid|miserable|useless] [idiot|fool|clown].",
  "Shut your mouth, you [idiot|moron|creep].",
  "You are the biggest [idiot|fool|moron] that I ever met.",
  "Get lost, you [pathetic|nasty|rotten] [little creep|loser|worm].",
  "I hate you, you [horrible|disgusting|stupid] [pig|toad|creep].",
  "Go away, you [brainless|stupid|useless] [clown|fool|pig].",
  "You are a worthless [fool|creep], and everybody knows it.",
  "You make me sick, you [worm|idiot|miserable toad].",
  "Drop dead, you [moron|nasty fool|idiot].",
  "What a pathetic, stupid [creep|clown|loser] you are.",
];
