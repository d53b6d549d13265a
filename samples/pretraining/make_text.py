"""Writes train.txt and dev.txt: small stories of one village, a sentence a line, a blank line after each.

    python make_text.py

People, trades, tools, animals and prices belong together, so that a masked word can often be told from the
others.
"""

import pathlib
import random
import re

# File: (seed, number of stories).
SIZES = {"train.txt": (2, 1000), "dev.txt": (3, 120)}

# Name, she or he, trade, where, tool, what is made, its price in coins, animal, where it sleeps, street.
PEOPLE = [row.split(", ") for row in """
Anna, she, baker, the bakery, oven, bread, three, cat, on the flour sacks, Mill Lane
Peter, he, smith, the forge, hammer, horseshoes, nine, dog, beside the anvil, Bridge Street
Clara, she, weaver, the weaving shed, loom, blankets, twelve, goat, under the stairs, Mill Lane
Jacob, he, fisherman, the harbour, net, herring, two, cat, in the boat, Harbour Road
Martha, she, beekeeper, the orchard, smoker, honey, five, hen, in the old hive, Church Hill
Simon, he, carpenter, the workshop, saw, chairs, ten, dog, in the wood shavings, Bridge Street
Ruth, she, potter, the pottery, wheel, bowls, four, parrot, on the highest shelf, Church Hill
Thomas, he, miller, the mill, millstone, flour, one, donkey, behind the water wheel, Mill Lane
Helen, she, gardener, the garden, spade, cabbages, two, rabbit, among the beans, Garden Row
Oscar, he, cobbler, the shoe shop, needle, boots, eight, cat, in an old boot, Station Street
Lucy, she, dairymaid, the dairy, churn, butter, four, cow, in the warm stable, Garden Row
Henry, he, clockmaker, the clock shop, lens, watches, twenty, canary, above the tall clock, Station Street
Edith, she, candlemaker, the candle shop, kettle, candles, one, cat, near the warm wax, Church Hill
Walter, he, shepherd, the high meadow, staff, wool, six, sheep, under the great oak, Hill Path
Nora, she, printer, the printing house, press, newspapers, one, owl, between the letters, Station Street
Felix, he, cheesemaker, the cellar, knife, cheese, seven, goat, outside the cellar door, Hill Path
""".strip().splitlines()]

WORK = {
    "baker": ["lit the oven", "kneaded the dough", "set the loaves on the shelf",
              "swept the flour from the floor"],
    "smith": ["blew the fire until it was white", "bent the iron on the anvil",
              "cooled the shoe in the water", "hung the hammer on its nail"],
    "weaver": ["wound the red wool", "threw the shuttle through the threads", "cut the blanket from the loom",
               "folded the blanket in four"],
    "fisherman": ["rowed out before sunrise", "cast the net on the left side", "pulled the net into the boat",
                  "counted the fish on the pier"],
    "beekeeper": ["calmed the bees with smoke", "opened the third hive", "let the honey run into a jar",
                  "closed the lid"],
    "carpenter": ["chose a straight plank", "sawed the plank in two", "smoothed the wood with a plane",
                  "glued the legs to the seat"],
    "potter": ["wetted the clay", "turned the wheel with one foot", "pressed a pattern into the rim",
               "put the bowls into the kiln"],
    "miller": ["opened the water gate", "poured the grain between the stones", "filled the sacks",
               "tied the sacks with string"],
    "gardener": ["dug the black earth", "planted the seeds in a row", "watered the young plants",
                 "pulled up the weeds"],
    "cobbler": ["measured the foot", "cut the leather", "sewed the sole to the boot",
                "polished the boot with a brush"],
    "dairymaid": ["milked the cow before dawn", "skimmed the cream", "turned the churn for an hour",
                  "wrapped the butter in cool leaves"],
    "clockmaker": ["opened the back of the watch", "cleaned the smallest wheel", "wound the spring",
                   "set the hands to noon"],
    "candlemaker": ["melted the wax in the kettle", "cut the wicks to length", "dipped the wicks seven times",
                    "hung the candles up to dry"],
    "shepherd": ["led the sheep up the hill", "counted the lambs twice", "sheared the oldest sheep",
                 "carried the wool down to the village"],
    "printer": ["set the letters in lines", "inked the page", "pulled the heavy lever",
                "hung the sheets on a rope"],
    "cheesemaker": ["warmed the milk", "cut the curd with a long knife", "pressed the cheese into its mould",
                    "rubbed the rind with salt"],
}
SOUNDS = {"cat": "mewed", "dog": "barked", "goat": "bleated", "hen": "clucked", "parrot": "screamed",
          "donkey": "brayed",
          "rabbit": "thumped", "cow": "mooed", "canary": "sang", "sheep": "bleated", "owl": "hooted"}
FOOD = {"cat": "a saucer of milk", "dog": "a bone", "goat": "a handful of salt", "hen": "some corn",
        "parrot": "a nut",
        "donkey": "an apple", "rabbit": "a carrot", "cow": "fresh hay", "canary": "a few seeds",
        "sheep": "green grass", "owl": "a mouse"}
WEATHER = [
    ("It rained [all day|without a break|from morning till night].",
     "The river rose to the second step of the bridge.",
     "{A} took {her} umbrella and jumped over the puddles.",
     "In the evening the rain stopped, and the street was full of mud."),
    ("Snow fell [in the night|on the roofs|over the valley].", "The river was frozen from bank to bank.",
     "{A} put on {her} thick gloves and cleared the snow from the door.",
     "The children built a snowman with a carrot for a nose."),
    ("The sun burned [all day|without mercy|on the dry fields].", "The river was so low that the stones "
     "could be seen.",
     "{A} wore {her} straw hat and sat down in the shade.", "In the evening everyone swam below the mill."),
    ("A storm came [from the sea|in the afternoon|over the hills].", "The river foamed, and the boats pulled "
     "at their ropes.",
     "{A} closed the shutters and held {her} hat with both hands.",
     "In the morning a tree lay across the road."),
    ("Fog hung [over the river|between the houses|in the valley].", "The river could be heard but not seen.",
     "{A} lit {her} lantern and walked slowly along the wall.", "At noon the fog lifted, and the church "
     "tower came out."),
]
FRUIT = [("apples", "red", "autumn", "orchard"), ("cherries", "dark", "summer", "orchard"),
         ("turnips", "white", "winter", "field"), ("strawberries", "small", "spring", "garden"),
         ("pumpkins", "yellow", "autumn", "field"), ("beans", "green", "summer", "garden")]
NUMBERS = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
PRONOUNS = {"she": {"she": "she", "She": "She", "her": "her", "him": "her"},
            "he": {"she": "he", "She": "He", "her": "his", "him": "him"}}


class Storyteller:
    """Tells stories."""

    def __init__(self, seed):
        self.chance = random.Random(seed)

    def person(self, row, prefix=""):
        name, gender, trade, place, tool, goods, price, animal, bed, street = row
        words = {"A": name, **PRONOUNS[gender], "trade": trade, "place": place, "goods": goods,
                 "animal": animal, "bed": bed,
                 "tool": tool, "a_tool": f"{'an' if tool[0] in 'aeiou' else 'a'} {tool}", "street": street,
                 "price": f"{price} coin{'s' * (price != 'one')}", "sound": SOUNDS[animal],
                 "food": FOOD[animal]}
        return {prefix + key: word for key, word in words.items()}

    def tell(self):
        """Returns a story as a list of sentences."""
        first, second = self.chance.sample(PEOPLE, 2)
        self.words = {**self.person(first), **self.person(second, "other_"), "day": self.chance.choice(DAYS)}
        story = self.chance.choice([self.work, self.market, self.lost, self.weather, self.letter, self.recipe,
                                    self.broken])
        return [self.expand(sentence) for sentence in story()]

    def expand(self, text):
        """Chooses among [a|b|c], fills in {names}."""
        chosen = re.sub(r"\[([^\]]*)\]", lambda match: self.chance.choice(match[1].split("|")), text)
        return chosen.format(**self.words)

    def some(self, sentences, count):
        """So many of the sentences, in their order."""
        return [sentences[place] for place in sorted(self.chance.sample(range(len(sentences)), count))]

    def work(self):
        first, second, third, fourth = WORK[self.words["trade"]]
        yield "On {day} {A} the {trade} [rose early|was up before the sun|walked to {place}]."
        yield f"First {{she}} {first}."
        yield f"Then {{she}} {second}[ and whistled a song| as always|]."
        yield f"{{She}} {third}, and {{her}} {{animal}} {{sound}}."
        yield f"Last of all {{she}} {fourth}."
        yield from self.some(["At noon {other_A} the {other_trade} came to {place} and asked for {goods}.",
                              "[It was a good day for {goods}.|{A} was tired but content.]",
                              "In the evening {she} walked home to {street}, and the {animal} slept {bed}."],
                             2)

    def market(self):
        yield "On {day} there was a market [in front of the church|beside the bridge|in the square]."
        yield ("{A} [brought {goods} from {place}|put {her} {goods} on a table|"
               "sold {goods}, as {she} did every week].")
        yield "[The {goods} cost {price}.|\"Only {price},\" said {A}, \"and not one coin less.\"]"
        yield ("{other_A}, who was a {other_trade}, paid with {other_goods} "
               "[because {other_she} had no coins|instead of coins].")
        yield from self.some(["\"Your {goods} are the best in the valley,\" said {other_A}.",
                              "{A} gave {other_him} a little more for nothing.",
                              "The {animal} of {A} {sound} at every stranger.",
                              "When the bell rang, {A} packed up and went home to {street}."], 2)

    def lost(self):
        self.words["hour"] = self.chance.choice(NUMBERS)
        yield "{A} the {trade} had lost {her} {animal}."
        yield "{She} looked [behind {place}|along {street}|under every cart], but the {animal} was not there."
        yield ("{She} asked {other_A}, [who lived in {other_street}|who was on the way to {other_place}|"
               "the {other_trade}].")
        yield "\"I heard something that {sound} at {hour} o'clock,\" said {other_A}."
        yield "[So {A} took {food} and called|{A} put {food} on the ground and waited]."
        yield "And there it was: the {animal} had slept {bed}."
        yield from self.some(["{A} thanked {other_A} and gave {other_him} some {goods}.",
                              "Since then the door is kept closed."], 1)

    def weather(self):
        first, river, person, last = self.chance.choice(WEATHER)
        yield first
        yield river
        yield person
        yield from self.some(["{other_A} the {other_trade} stayed at home in {other_street}, and the "
                              "{other_animal} slept {other_bed}.", "Nobody came to {place} to buy {goods}.",
                              "Only the {animal} did not mind and {sound} as on any other day."], 2)
        yield last

    def letter(self):
        yield "Dear {other_A},"
        yield ("[thank you for the {other_goods}|the {other_goods} came on {day}|"
               "I have your {other_goods} in front of me].")
        yield "[Is your {other_animal} well?|Does the {other_animal} still sleep {other_bed}?]"
        yield "Here at {place} there is [much|little|always enough] to do, and I need a new {tool}."
        yield "[My {animal} sleeps {bed}.|I give my {animal} {food} every day.]"
        yield "Come and see me in {street}, and bring {other_food} for nobody but your {other_animal}."
        yield "Your friend {A}, the {trade}"

    def recipe(self):
        fruit, colour, season, where = self.chance.choice(FRUIT)
        self.words.update(fruit=fruit, colour=colour, season=season, where=where,
                          count=self.chance.choice(NUMBERS))
        yield "In {season} {A} makes soup of {fruit}."
        yield "Take {count} {colour} {fruit} from the {where} and wash them in cold water."
        yield "Cut the {fruit} into [small|thin|even] pieces and put them into a pot."
        yield ("Add salt, water and [a spoon of honey from Martha|a little butter from Lucy|"
               "some flour from Thomas].")
        yield "Let the pot stand on the fire until the {fruit} are soft."
        yield ("[Eat the soup with bread from Anna.|"
               "{other_A} says that it tastes best from a bowl that Ruth made.]")

    def broken(self):
        yield "The {tool} of {A} the {trade} was broken."
        yield "Without {a_tool} nobody can make {goods}, [and {A} was sad|and so {she} could not work]."
        yield "{She} took it to [Peter, who has a forge|Simon, who has a workshop] in Bridge Street."
        yield "[\"Come back on {day},\" he said.|\"That is easy,\" he said.]"
        yield "{other_A} the {other_trade} lent {A} [a cart|a coin|an old one] until then."
        yield "On {day} the {tool} was as good as new, and {place} was open again."
        yield "{A} paid with {goods}[| and a smile], as {a_tool} costs {price} elsewhere."


def text_of(seed, count):
    """Returns that many stories."""
    teller = Storyteller(seed)
    return "\n\n".join("\n".join(teller.tell()) for _ in range(count)) + "\n"


if __name__ == "__main__":
    for name, size in SIZES.items():
        (pathlib.Path(__file__).parent / name).write_text(text_of(*size), encoding="utf-8")
