<?xml version="1.0"?>
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:key name="by-customer" match="order" use="@customer"/>
<xsl:template match="/orders">
  <report>
    <xsl:for-each select="order[generate-id() = generate-id(key('by-customer', @customer)[1])]">
      <xsl:sort select="@customer"/>
      <customer name="{@customer}" total="{sum(key('by-customer', @customer)/item/@price)}">
        <xsl:for-each select="key('by-customer', @customer)/item">
          <xsl:sort select="@price" data-type="number" order="descending"/>
          <xsl:if test="contains(name, '7')"><thing><xsl:value-of select="translate(name, 'aeiou', 'AEIOU')"/></thing></xsl:if>
        </xsl:for-each>
      </customer>
    </xsl:for-each>
  </report>
</xsl:template>
</xsl:stylesheet>
