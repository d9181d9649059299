from kitchen import table

print(table())
