"""Words for arguments: cities of the real world, and what people look for, listen to or write."""

from ..vocabulary import invented_town
from ..world import TOWN_NAMES

CITIES = (
    "Paris|Berlin|Tokyo|London|Madrid|Rome|Vienna|Prague|Warsaw|Budapest|Lisbon|Dublin|Athens|Oslo|"
    "Stockholm|Helsinki|Copenhagen|Brussels|Amsterdam|Zurich|Geneva|Bern|Munich|Hamburg|Cologne|"
    "Frankfurt|Stuttgart|Leipzig|Dresden|Bremen|Hanover|Nuremberg|Ulm|Freiburg|Lyon|Marseille|Nice|"
    "Toulouse|Bordeaux|Lille|Nantes|Strasbourg|Barcelona|Valencia|Seville|Bilbao|Malaga|Granada|"
    "Porto|Milan|Naples|Turin|Venice|Florence|Bologna|Genoa|Palermo|Verona|Salzburg|Graz|Linz|"
    "Innsbruck|Krakow|Gdansk|Poznan|Wroclaw|Brno|Bratislava|Ljubljana|Zagreb|Split|Belgrade|"
    "Sarajevo|Skopje|Sofia|Varna|Bucharest|Cluj|Kyiv|Lviv|Odesa|Minsk|Vilnius|Riga|Tallinn|Moscow|"
    "Kazan|Istanbul|Ankara|Izmir|Antalya|Tbilisi|Yerevan|Baku|Tehran|Baghdad|Damascus|Beirut|Amman|"
    "Jerusalem|Haifa|Cairo|Alexandria|Tunis|Algiers|Casablanca|Rabat|Marrakesh|Dakar|Accra|Lagos|"
    "Abuja|Nairobi|Mombasa|Kampala|Kigali|Addis Ababa|Harare|Lusaka|Johannesburg|Pretoria|Durban|"
    "Cape Town|Dubai|Abu Dhabi|Doha|Riyadh|Muscat|Karachi|Lahore|Islamabad|Delhi|New Delhi|Mumbai|"
    "Bangalore|Chennai|Kolkata|Hyderabad|Pune|Jaipur|Colombo|Dhaka|Kathmandu|Yangon|Bangkok|Phuket|"
    "Hanoi|Saigon|Phnom Penh|Kuala Lumpur|Singapore|Jakarta|Bandung|Bali|Manila|Cebu|Taipei|"
    "Hong Kong|Macau|Shenzhen|Guangzhou|Shanghai|Beijing|Nanjing|Wuhan|Chengdu|Xian|Tianjin|Seoul|"
    "Busan|Incheon|Osaka|Kyoto|Nagoya|Sapporo|Fukuoka|Kobe|Yokohama|Hiroshima|Ulaanbaatar|Almaty|"
    "Tashkent|Sydney|Melbourne|Brisbane|Perth|Adelaide|Darwin|Hobart|Canberra|Auckland|Wellington|"
    "Christchurch|Honolulu|Anchorage|Vancouver|Victoria|Calgary|Edmonton|Winnipeg|Toronto|Ottawa|"
    "Montreal|Quebec|Halifax|Seattle|Portland|San Francisco|Oakland|San Jose|Los Angeles|San Diego|"
    "Las Vegas|Phoenix|Denver|Salt Lake City|Dallas|Houston|Austin|San Antonio|New Orleans|Memphis|"
    "Nashville|Atlanta|Miami|Orlando|Tampa|Charlotte|Washington|Baltimore|Philadelphia|New York|"
    "Brooklyn|Boston|Buffalo|Cleveland|Detroit|Chicago|Milwaukee|Minneapolis|St. Louis|Kansas City|"
    "Omaha|Tulsa|Tucson|Boise|Reno|Sacramento|Fresno|Mexico City|Guadalajara|Monterrey|Cancun|"
    "Havana|Kingston|Panama City|Bogota|Medellin|Cali|Quito|Lima|Cusco|La Paz|Santiago|Valparaiso|"
    "Buenos Aires|Cordoba|Rosario|Montevideo|Rio de Janeiro|Brasilia|Salvador|Recife|Manaus|"
    "Caracas|Reykjavik|Bergen|Trondheim|Gothenburg|Malmo|Uppsala|Aarhus|Turku|Tampere|Edinburgh|"
    "Glasgow|"
    "Cardiff|Belfast|Cork|Galway|Manchester|Liverpool|Leeds|Sheffield|Bristol|Oxford|Cambridge|"
    "York|Brighton|Bath|Norwich|Plymouth|Antwerp|Ghent|Bruges|Rotterdam|Utrecht|Eindhoven|"
    "Luxembourg|"
    "Monaco|Basel|Lucerne|Lausanne|Valletta|Nicosia|Heidelberg|Bonn|Mainz|Kiel|Lübeck|Köln|Zürich|"
    "München|Düsseldorf|São Paulo|Málaga|Córdoba|Århus|Nîmes"
).split("|")

ZONES = (
    "Europe/Paris|Europe/Berlin|Europe/London|Europe/Madrid|Europe/Rome|Europe/Vienna|Europe/Oslo|"
    "Europe/Lisbon|Europe/Athens|Europe/Moscow|Asia/Tokyo|Asia/Seoul|Asia/Shanghai|Asia/Singapore|"
    "Asia/Dubai|Asia/Kolkata|Asia/Bangkok|Asia/Manila|Africa/Cairo|Africa/Lagos|Africa/Nairobi|"
    "America/Chicago|America/Denver|America/Toronto|America/Lima|America/Bogota|America/Halifax|"
    "Australia/Sydney|Australia/Perth|Pacific/Auckland|Pacific/Honolulu|UTC|GMT|CET|EST|PST|JST"
).split("|")

COUNTRIES = (
    "France|Germany|Italy|Spain|Portugal|Norway|Sweden|Finland|Denmark|Poland|Austria|Hungary|"
    "Greece|Turkey|Egypt|Kenya|Nigeria|India|China|Japan|Korea|Vietnam|Thailand|Australia|Canada|"
    "Mexico|Brazil|Peru|Chile|Argentina|Ireland|Iceland|Ukraine|Romania|Croatia|Belgium"
).split("|")

LANGUAGES = (
    "French|German|Italian|Spanish|Portuguese|Norwegian|Swedish|Finnish|Danish|Polish|Greek|"
    "Turkish|Arabic|Hindi|Chinese|Japanese|Korean|Russian|Dutch|Czech"
).split("|")

FIRST_NAMES = (
    "Anna Ben Carla David Emma Frank Grace Henry Iris Jack Kate Liam Maria Noah Olivia Paul Quinn "
    "Rachel Sam Tina Uma Vincent Wendy Xavier Yara Zoe Alice Bob Carol Dan Eve Fiona George Hannah "
    "Isaac Julia Kevin Laura Martin Nina Oscar Peter Rita Sarah Thomas Ursula Walter Amir Chen Yuki"
).split()

HOSTS = "example.com|example.org|mail.example|post.net|acme.com|work.org|home.net|school.edu".split(
    "|"
)

WORDS = (
    "best cheap good new old easy quick famous healthy local open free modern small large electric "
    "solar wooden green black white red blue hot cold fresh wild sweet simple safe fast "
    "pizza pasta bread cake soup salad recipe recipes coffee tea restaurant restaurants hotel "
    "hotels flights trains buses bikes cars museum museums park parks beach beaches concerts "
    "movies films books songs music games news weather history science physics chemistry biology "
    "space "
    "planets stars moon mars rockets robots computers phones laptops cameras software code python "
    "rust java linux actors models language learning machine data network server privacy security "
    "health yoga running swimming football tennis chess cycling hiking climbing dance painting "
    "drawing guitar piano violin garden gardens flowers roses trees birds cats dogs horses bees "
    "whales dinosaurs volcanoes rivers lakes mountains islands bridges castles towers houses jobs "
    "taxes money stocks gold insurance school university exam homework essay letters stamps coins "
    "shoes jackets umbrellas chairs tables lamps tools paint wood glass energy wind water climate "
    "birthday wedding party gift ideas tips guide map prices opening hours tickets schedule"
).split()
"""What people look for. The first word of an argument is spelled, so it must be known by heart."""

SUBJECTS = (
    "Lunch|Meeting|Holiday|Invoice|Birthday|Report|Dinner|Project|News|Question|Party|Reminder|"
    "Thanks|Contract|Travel|Schedule|Photos|Homework|Tickets|Offer"
).split("|")

OPENINGS = (
    "See you|The meeting is|Please call me|I will be there|Dinner is|The report is ready|"
    "We are waiting|Thank you, and goodbye|Can we talk|The train leaves|Let us meet|Bring the keys|"
    "I am running late|Happy birthday|The invoice is paid|Do not forget the tickets"
).split("|")

ENDINGS = (
    "soon|tomorrow|at noon|at the station|at home|on Monday|on Friday|next week|in the garden|"
    "in the evening|at ten|before lunch|after work|today|this weekend|in Room 4"
).split("|")


class Plain:
    """Words and names that anybody may use."""

    def word(self, rng):
        return rng.choice(WORDS)

    def name(self, rng):
        kind = rng.random()
        if kind < 0.12:
            return invented_town(rng)
        return rng.choice(TOWN_NAMES if kind < 0.2 else CITIES)


class Pieces:
    """Words and names of a tokenizer's own tokens: each is copied often, even a rare one."""

    def __init__(self, words):
        self.words = words

    def word(self, rng):
        return self.words.item(rng) if rng.random() < 0.8 else rng.choice(WORDS)

    def name(self, rng):
        return self.words.name(rng) if rng.random() < 0.8 else rng.choice(CITIES)


PLAIN = Plain()


def city(rng, split, source):
    return split.draw(lambda: source.name(rng), "city")
