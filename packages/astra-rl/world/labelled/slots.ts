/** Words for the open places of the templates; none of them is rude. */

export const subjects: readonly string[] = [
  "the book", "my bicycle", "your letter", "the old bridge", "her new job", "the school", "our meeting", "the cake",
  "that song", "the river", "his painting", "the key", "the garden", "a cup of tea", "the match", "your coat",
  "the news", "the wedding", "my grandfather", "the photograph", "the phone call", "this recipe", "the doctor",
  "the rain", "our holiday", "the exam", "the castle", "your birthday", "the radio", "the boat", "money", "politics",
  "the carpet", "my shoes", "the lamp", "a hundred stamps", "the train to the coast", "the tomatoes", "football",
  "the piano lesson", "the new neighbours", "a ladder", "the dog", "the office party", "the soup", "the flat",
];

export const verbs: readonly string[] = [
  "bake bread", "walk to the station", "call my mother", "fix the roof", "learn Spanish", "read a book", "swim",
  "sing in the choir", "plant a tree", "wash the car", "write to the council", "play cards", "go to bed early",
  "cook dinner", "paint the door", "take the bus", "visit the museum", "clean the windows", "count the money",
  "climb the hill", "help the children", "buy a new lamp", "speak to the teacher", "ride a bicycle", "draw a map",
  "feed the cat", "listen to the radio", "make a plan", "carry the boxes", "run a mile",
];

export const clauses: readonly string[] = [
  "the train was late", "we had soup for dinner", "the cat slept on the chair", "my sister came to visit",
  "the lights went out", "I found my keys", "the shop was closed", "it rained all night", "the baby laughed",
  "we took the wrong turn", "the coffee is ready", "nobody answered the door", "the bus stops here",
  "they won the match", "the water is cold", "I forgot your name", "the meeting is on Friday", "dinner is at seven",
  "the garden needs rain", "he plays the violin", "you left your hat here", "we can see the sea", "I have a plan",
  "the window is open", "you said it yourself", "the picture is crooked", "it is time to go", "the milk is gone",
  "you still have my pen", "everyone went home", "your coat is wet", "you were late again",
];
