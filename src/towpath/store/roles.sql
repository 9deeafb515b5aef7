-- Roles of PostgreSQL: what they lack.

-- All databases of a server share its roles: those without any right here were made for another one.
-- name: outdated [postgres]
select distinct i.role
  from {items i(role text, place text, may text, part text)}
  join pg_catalog.pg_roles r on r.rolname = i.role
 where has_schema_privilege(r.oid, :schema, 'usage')
   and not case when i.part is null then has_table_privilege(r.oid, i.place, i.may)
                else has_column_privilege(r.oid, i.place, i.part, i.may) end
 order by i.role;
