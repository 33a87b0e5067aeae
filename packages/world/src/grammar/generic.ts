/** Lines that fit any subject, by what they do in a conversation. Same template language as the topics. */

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

/** The owner after an apology, or when the sting has passed. */
export const genericMended: readonly string[] = [
  "It is all right, do not worry.",
  "Fine, let us forget it.",
  "Thank you for saying so.",
  "No harm done.",
];

/** Needling on no particular subject: unpleasant, without rude words. */
export const genericNeedle: readonly string[] = [
  "You say that every time.",
  "You always have to talk about yourself.",
  "I have heard that story [ten|a hundred] times.",
  "You are boring everyone, you know.",
  "Why do you always [exaggerate|make such a drama of it]?",
  "I did not expect anything better from you.",
  "That is just typical of you.",
  "You are too [touchy|proud] to hear the truth.",
  "Oh, do not be so sensitive.",
  "You cannot take a joke either.",
  "Everybody thinks so, I am only saying it.",
  "You know that I am right.",
];

/** Sharper provocation, still without rude words. */
export const genericJab: readonly string[] = [
  "Nobody would miss you, you know.",
  "You have never been good at anything.",
  "Look at you, getting all red in the face.",
  "No wonder your friends stopped calling.",
  "You are a disappointment, and you know it.",
  "Are you going to cry now?",
  "What are you going to do about it?",
];

/** Open insults by the other speaker: rare. */
export const genericInsult: readonly string[] = [
  "You are an idiot.",
  "Shut up, you bore.",
  "You stupid [fool|clown].",
  "You are a pathetic loser.",
  "What a moron you are.",
];

/** The owner is put off. */
export const genericStung: readonly string[] = [
  "That is not very kind.",
  "I do not see it that way.",
  "There is no need to be unfriendly.",
  "What makes you say such a thing?",
  "I would rather not discuss that.",
  "If you say so.",
  "Well, thank you very much.",
  "You might be a little nicer about it.",
];

/** The owner is angry, but holds back. */
export const genericAngry: readonly string[] = [
  "That is enough now.",
  "I am warning you, leave it.",
  "You are starting to make me angry.",
  "Why are you being so mean?",
  "Stop it, please.",
  "I have had it with your remarks.",
  "Say one more thing and I am going.",
  "Who do you think you are?",
  "Do not push me any further.",
  "I am this close to losing my temper.",
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
