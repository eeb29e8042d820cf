"""Values: events, subscriptions, regions, filters, and how they are written down."""
