import java.text.DateFormatSymbols;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.TreeSet;
import org.joda.time.DateTimeZone;
import org.joda.time.tz.DefaultNameProvider;

/** Prints the names of months, days, halves of the day, eras and time zones, as Joda-Time has them, one JSON document per line. */
public class JodaNames {
  private static String text(String value) {
    if (value == null) {
      return "null";
    }
    StringBuilder json = new StringBuilder("\"");
    for (char c : value.toCharArray()) {
      json.append(c < 0x20 || c > 0x7e || c == '"' || c == '\\' ? String.format("\\u%04x", (int) c) : String.valueOf(c));
    }
    return json.append('"').toString();
  }

  private static String list(List<String> json) {
    return "[" + String.join(",", json) + "]";
  }

  private static String texts(String... values) {
    return list(Arrays.stream(values).map(JodaNames::text).toList());
  }

  public static void main(String[] arguments) {
    TreeSet<String> languages = new TreeSet<>(List.of(""));
    for (Locale locale : Locale.getAvailableLocales()) {
      languages.add(locale.getLanguage());
    }
    for (String language : Locale.getISOLanguages()) {
      languages.add(new Locale(language).getLanguage());
    }
    List<String> zones = new ArrayList<>();
    for (String id : DateTimeZone.getAvailableIDs()) {
      zones.add(texts(id, DateTimeZone.forID(id).getID()));
    }
    System.out.println(list(zones));
    for (String language : languages) {
      // As Kafka Connect makes a locale: of one text, without a region.
      Locale locale = new Locale(language);
      DateFormatSymbols symbols = DateFormatSymbols.getInstance(locale);
      List<String> names = new ArrayList<>();
      DefaultNameProvider provider = new DefaultNameProvider();
      for (String id : DateTimeZone.getAvailableIDs()) {
        DateTimeZone zone = DateTimeZone.forID(id);
        String key = zone.getNameKey(0);
        List<String> ofZone = new ArrayList<>();
        for (boolean standard : new boolean[] {true, false}) {
          ofZone.add(provider.getShortName(locale, zone.getID(), key, standard));
          ofZone.add(provider.getName(locale, zone.getID(), key, standard));
        }
        names.add(texts(ofZone.toArray(new String[0])));
      }
      System.out.println(
          list(
              List.of(
                  text(language),
                  texts(symbols.getMonths()),
                  texts(symbols.getShortMonths()),
                  texts(symbols.getWeekdays()),
                  texts(symbols.getShortWeekdays()),
                  texts(symbols.getAmPmStrings()),
                  texts(symbols.getEras()),
                  list(names))));
    }
  }
}
