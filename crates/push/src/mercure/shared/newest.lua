-- Returns the id of the newest update, and that of the newest presence event.
return { tail_of(updates).id, tail_of(presence).id }
